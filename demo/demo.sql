\set ON_ERROR_STOP on
SELECT version();
