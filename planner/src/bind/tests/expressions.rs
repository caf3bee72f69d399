//! Expressions: SQL text to the text that PostgreSQL 15 gives.

use super::{Bench, check};

#[test]
fn numbers() {
    check(
        &Bench::new(),
        &[
            ("SELECT 1 + 2, 7 / 2, -7 / 2, -7 % 3, 7.0 / 2, 2 ^ 3", &["3 3 -3 -1 3.5000000000000000 8"]),
            ("SELECT (2.5)::int, (3.5)::int, (2.5::float8)::int, (-2.5)::int", &["3 4 2 -3"]),
            ("SELECT 2147483647 + 1", &["!22003"]),
            ("SELECT 2147483648 + 1, -2147483648, -9223372036854775808", &["2147483649 -2147483648 -9223372036854775808"]),
            ("SELECT 32767::smallint + 1::smallint", &["!22003"]),
            ("SELECT 9223372036854775807 + 1", &["!22003"]),
            ("SELECT -2 ^ 2, - 3 ^ 2, -(3 ^ 2), ~1 + 1, (~1) + 1, 2 - -1, @ -5 + 1", &["4 9 -9 -3 -1 3 4"]),
            (
                "SELECT '-nan'::float8 = 'nan', 0::float8 = '-0', 'inf'::float8 - 'inf' > 'inf', '-nan'::real IN (1, 'nan'), -0.0::float8 < 0.0::float8",
                &["t t t t f"],
            ),
            (
                "SELECT x, count(*) FROM (VALUES ('nan'::float8), ('-nan'), ('-inf'), (0), ('-0'), ('inf')) t(x) GROUP BY x ORDER BY x",
                &["-Infinity 1", "0 2", "Infinity 1", "NaN 2"],
            ),
            ("SELECT 1 / 0", &["!22012"]),
            ("SELECT 1.5 / 0", &["!22012"]),
            ("SELECT 1.0::float8 / 0", &["!22012"]),
            ("SELECT 5 % 0", &["!22012"]),
            ("SELECT CASE WHEN 1 = 0 THEN 1 / 0 ELSE 5 END", &["5"]),
            ("SELECT (-0.0000004)::numeric(8,2), '-0.00'::numeric(6,2), -0.0 * 7.25", &["0.00 0.00 0.000"]),
            (
                "SELECT round(999.96::numeric(6,2), 1), round(99.95, 1), round(2.5), round(-2.5), round(2.5::float8), round(1.45, 6), round(1265.5, -2)",
                &["1000.0 100.0 3 -3 2 1.450000 1300"],
            ),
            ("SELECT 0.1::float8 + 0.2::float8, 1e15::float8, 1e-5::float8", &["0.30000000000000004 1e+15 1e-05"]),
            ("SELECT '-inf'::float8, 'iNfInItY'::real, 'nan'::float8", &["-Infinity Infinity NaN"]),
            ("SELECT '-2e999'::float8", &["!22003"]),
            ("SELECT '1e60'::real", &["!22003"]),
            ("SELECT '1e-999'::float8", &["!22003"]),
            ("SELECT 1e400::float8", &["!22003"]),
            ("SELECT 1e40::real", &["!22003"]),
            ("SELECT 1.5e2::float8, 10.25::real, -1e-300::float8, (1e39)::float8", &["150 10.25 -1e-300 1e+39"]),
            ("SELECT 1e308::float8 * 10", &["!22003"]),
            ("SELECT 0.908 * 100::bigint, 1.50 + 1, 2 * 1.5, 10 - 0.25", &["90.800 2.50 3.0 9.75"]),
            (
                "SELECT abs(-5), abs(-1.5), ceil(1.2), floor(-1.2), ceil(1.2::float8), trunc(1.99), trunc(-1.278, 2)",
                &["5 1.5 2 -2 2 1 -1.27"],
            ),
            ("SELECT sqrt(2::float8), power(2, 10), exp(0::float8), ln(1::float8), log(100::float8)", &["1.4142135623730951 1024 1 0 2"]),
            ("SELECT mod(7, 3), mod(-7, 3), gcd(12, 18), sign(-2.5), div(7, 2)", &["1 -1 6 -1 3"]),
            ("SELECT 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 3, 16 >> 2", &["1 7 6 -6 8 4"]),
            (
                "SELECT 1::int2 + 1::int8, pg_typeof(1::int2 + 1), pg_typeof(1 + 1.5), pg_typeof(1::real + 1)",
                &["2 integer numeric double precision"],
            ),
            ("SELECT 1 = 1.0, 2 > 1.5, 1::bigint = 1::smallint, 0.1 = 0.10", &["t t t t"]),
            ("SELECT '12'::int + 1, '1.5'::numeric * 2, 12::text || 'x', 1.50::text", &["13 3.0 12x 1.50"]),
            ("SELECT 'abc'::int", &["!22P02"]),
            ("SELECT 99999999999::int", &["!22003"]),
            (
                "SELECT greatest(1, 3, 2), least(1.5, 0.5), greatest(NULL, 1), coalesce(NULL, 2, 3), nullif(1, 1), nullif(1, 2)",
                &["3 0.5 1 2 NULL 1"],
            ),
            ("SELECT 1e3, 1.5e2::int, 123456789012345678901234567890", &["1000 150 123456789012345678901234567890"]),
            (
                "SELECT 10::numeric / 3, 2::numeric / 3, 100000::numeric / 3",
                &["3.3333333333333333 0.66666666666666666667 33333.333333333333"],
            ),
        ],
    );
}

#[test]
fn texts() {
    check(
        &Bench::new(),
        &[
            ("SELECT lower('ABC'), upper('abc'), initcap('hi tHERE'), length('naïve日'), reverse('abc')", &["abc ABC Hi There 6 cba"]),
            (
                "SELECT substr('abcdef', 2, 3), substring('abcdef' FROM 2), substring('abcdef' FOR 2), left('abc', 2), right('abc', -1)",
                &["bcd bcdef ab ab bc"],
            ),
            ("SELECT trim('  x '), btrim('xxaxx', 'x'), ltrim('xxa', 'x'), trim(LEADING 'x' FROM 'xxa'), rtrim('a  ')", &["x a a a a"]),
            ("SELECT lpad('7', 3, '0'), rpad('ab', 4, 'xy'), repeat('ab', 3), replace('aXbX', 'X', '-')", &["007 abxy ababab a-b-"]),
            ("SELECT split_part('a/b/c', '/', 2), split_part('a/b/c', '/', 9), split_part('a/b/c', '/', -1)", &["b  c"]),
            ("SELECT position('b' IN 'abc'), strpos('abc', 'z'), starts_with('abc', 'ab'), ascii('A'), chr(66)", &["2 0 t 65 B"]),
            (
                "SELECT 'a' || 'b', 'a' || 1, 1 || 'a', 'a' || NULL, concat('a', NULL, 1, true), concat_ws(',', 'a', NULL, 'b')",
                &["ab a1 1a NULL a1t a,b"],
            ),
            (
                "SELECT translate('12345', '143', 'ax'), overlay('Txxxxas' PLACING 'hom' FROM 2 FOR 4), md5('abc')",
                &["a2x5 Thomas 900150983cd24fb0d6963f7d28e17f72"],
            ),
            (
                "SELECT quote_ident('Ab c'), quote_literal('it''s'), quote_nullable(NULL), to_hex(255), format('%s-%I-%L', 'a', 'B', 'c')",
                &["\"Ab c\" 'it''s' NULL ff a-\"B\"-'c'"],
            ),
            (
                "SELECT 'abc' LIKE 'a%', 'abc' LIKE '_b_', 'abc' NOT LIKE 'x%', 'ABC' ILIKE 'a%', 'a%c' LIKE 'a#%c' ESCAPE '#'",
                &["t t t t t"],
            ),
            ("SELECT 'abc' ~ 'b', 'abc' ~* 'B', 'abc' !~ 'x', 'abc' SIMILAR TO 'a(b|x)c', 'abc' ~ '^\\w+$'", &["t t t t t"]),
            ("SELECT (regexp_match('http://x?channel_id=7&a=1', '(&|^|\\?)channel_id=([^&]*)'))[2], regexp_match('abc', 'x')", &["7 NULL"]),
            (
                "SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b(..)', 'X\\1Y', 'g'), regexp_split_to_array('a1b2c', '\\d')",
                &["fooXbaz fooXarYXazY {a,b,c}"],
            ),
            ("SELECT 'abcdef'::varchar(3), 'ab'::char(4) || 'x', char_length('abc'), octet_length('é')", &["abc abx 3 2"]),
            ("SELECT 'a' < 'b', 'B' < 'a', 'a' = 'a ', 'a'::char(3) = 'a'::char(5)", &["t t f t"]),
            (
                "SELECT ascii(''::char(3)), length('a'::char(3)), octet_length('a'::char(3)), 'a'::char(3) || 'b', upper('a'::char(3)) || 'x', 'a'::char(3)::varchar || 'x', concat('a'::char(3), 'b'), format('%s|', 'a'::char(3))",
                &["0 1 3 ab Ax ax a  b a  |"],
            ),
            (
                "SELECT 'a '::char(3) LIKE 'a', 'a'::char(3) = 'a '::varchar, md5('a'::char(3)) = md5('a'), 'abc'::varchar::\"char\"",
                &["f f t a"],
            ),
            (
                "SELECT regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 0, 'i'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 3, 'i'), regexp_replace('abcabc', 'b', 'X', 3)",
                &["X PXstgrXSQL fXnctXXn A PostgrXSQL function abcaXc"],
            ),
            ("SELECT regexp_matches('foobarbequebaz', 'ba.', 'g')", &["{bar}", "{baz}"]),
            ("SELECT NULL ISNULL, 1 ISNULL, 1 NOTNULL", &["t f t"]),
            ("SELECT true::text, false || '', true, 't'::boolean, 'off'::boolean, 1::boolean", &["true false t t f t"]),
            (
                "SELECT '\\x6b657931'::bytea, length('\\x00ff'::bytea), encode('\\x00ff'::bytea, 'hex'), encode('\\x00ff', 'base64'), get_byte('\\x00ff', 1)",
                &["\\x6b657931 2 00ff AP8= 255"],
            ),
            ("SELECT '\\x0'::bytea", &["!22023"]),
            ("SELECT E'a\\nb', 'it''s', $$x$y$$, U&'\\0041'", &["a\nb it's x$y A"]),
            ("SELECT substring('foobar' FROM 'o.b'), regexp_count('abab', 'a'), 'a' ^@ 'a'", &["oob 2 t"]),
        ],
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "one list of cases")]
fn moments() {
    check(
        &Bench::new(),
        &[
            (
                "SELECT DATE '2031-01-31' + INTERVAL '1 month', TIMESTAMP '2032-03-31 08:00' - INTERVAL '1 month'",
                &["2031-02-28 00:00:00 2032-02-29 08:00:00"],
            ),
            (
                "SELECT INTERVAL '1 month' * 1.5, INTERVAL '1 day' / 4, -INTERVAL '1 day', INTERVAL '1 day' - INTERVAL '1 day'",
                &["1 mon 15 days 06:00:00 -1 days 00:00:00"],
            ),
            (
                "SELECT INTERVAL '1 month' > INTERVAL '29 days', INTERVAL '1 year' = INTERVAL '360 days', INTERVAL '1 year' = INTERVAL '12 months', extract(epoch FROM INTERVAL '1 year')",
                &["t t t 31557600.000000"],
            ),
            ("SELECT (INTERVAL '-1 day' + INTERVAL '1 day') = (INTERVAL '1 day' - INTERVAL '1 day')", &["t"]),
            (
                "SELECT TIMESTAMP '2031-03-01 00:00' - TIMESTAMP '2031-02-01 12:00', age(TIMESTAMP '2031-03-01', TIMESTAMP '2031-01-31'), DATE '2031-03-01' - DATE '2031-02-01'",
                &["27 days 12:00:00 1 mon 1 day 28"],
            ),
            ("SELECT '2031-02-30'::timestamp", &["!22008"]),
            ("SELECT '2031-13-01'::date", &["!22008"]),
            ("SELECT '2031-02-28 25:00:00'::timestamp", &["!22008"]),
            ("SELECT DATE '2032-02-29', TIMESTAMP '2031-12-31 24:00:00'", &["2032-02-29 2032-01-01 00:00:00"]),
            (
                "SELECT 'infinity'::timestamp > TIMESTAMP '9999-12-31', '-infinity'::date < DATE '0001-01-01', 'infinity'::timestamp",
                &["t t infinity"],
            ),
            (
                "SELECT '0002-11-30 10:00:00 BC'::timestamp, extract(year FROM '0002-11-30 BC'::date), '0001-01-01'::date - 1",
                &["0002-11-30 10:00:00 BC -2 0001-12-31 BC"],
            ),
            (
                "SELECT extract(hour FROM TIMESTAMP '2031-01-02 03:04:05.678'), extract(second FROM TIMESTAMP '2031-01-02 03:04:05.678'), extract(dow FROM DATE '2031-01-05'), extract(doy FROM DATE '2031-02-01'), extract(week FROM DATE '2031-01-01'), extract(quarter FROM DATE '2031-05-01')",
                &["3 5.678000 0 32 1 2"],
            ),
            (
                "SELECT date_trunc('month', TIMESTAMP '2031-05-17 10:00'), date_trunc('week', DATE '2031-05-17'), date_part('year', DATE '2031-05-17')",
                &["2031-05-01 00:00:00 2031-05-12 00:00:00+00 2031"],
            ),
            (
                "SELECT date_bin('15 minutes', TIMESTAMP '2031-01-01 10:17', TIMESTAMP '2031-01-01'), DATE '2031-01-01' + 5, 5 + DATE '2031-01-01', DATE '2031-01-01' + TIME '10:00'",
                &["2031-01-01 10:15:00 2031-01-06 2031-01-06 2031-01-01 10:00:00"],
            ),
            (
                "SELECT TIME '23:00' + INTERVAL '2 hours', TIME '10:00' - TIME '09:30', TIMESTAMP '2031-01-01 10:00'::time, TIMESTAMP '2031-01-01 10:00'::date",
                &["01:00:00 00:30:00 10:00:00 2031-01-01"],
            ),
            (
                "SELECT INTERVAL '10' SECOND, INTERVAL '1-2' YEAR TO MONTH, INTERVAL '1 day 02:03:04', justify_days(INTERVAL '35 days'), make_interval(0, 1, 0, 2)",
                &["00:00:10 1 year 2 mons 1 day 02:03:04 1 mon 5 days 1 mon 2 days"],
            ),
            (
                "SELECT to_timestamp(0), make_date(2031, 2, 3), make_timestamp(2031, 2, 3, 4, 5, 6.5), TIMESTAMP '2031-01-01 00:00:00.123456'::timestamp(3)",
                &["1970-01-01 00:00:00+00 2031-02-03 2031-02-03 04:05:06.5 2031-01-01 00:00:00.123"],
            ),
            (
                "SELECT now(), current_date, 'today'::date, now() - INTERVAL '1 hour' < now(), localtimestamp",
                &["2031-06-15 12:00:00+00 2031-06-15 2031-06-15 t 2031-06-15 12:00:00"],
            ),
            (
                "SELECT TIMESTAMPTZ '2031-01-01 12:00+02', '2031-01-01 12:00'::timestamp AT TIME ZONE 'UTC', '2031-07-01 12:00Z'::timestamptz AT TIME ZONE 'America/New_York'",
                &["2031-01-01 10:00:00+00 2031-01-01 12:00:00+00 2031-07-01 08:00:00"],
            ),
            (
                "SELECT timezone('+5', TIMESTAMPTZ '2001-01-01 12:00+00'), timezone('-5', TIMESTAMPTZ '2001-01-01 12:00+00'), timezone('+05:30', TIMESTAMPTZ '2001-01-01 12:00+00')",
                &["2001-01-01 07:00:00 2001-01-01 17:00:00 2001-01-01 06:30:00"],
            ),
            (
                "SELECT DATE '2031-01-01' = TIMESTAMP '2031-01-01 00:00', DATE '2031-01-01' < '2031-01-02', TIMESTAMP '2031-01-01' BETWEEN '2030-01-01' AND '2032-01-01'",
                &["t t t"],
            ),
        ],
    );
}

#[test]
fn arrays_and_json() {
    check(
        &Bench::new(),
        &[
            (
                "SELECT ARRAY[1,2,3], (ARRAY[1,2,3])[2], (ARRAY[1,2])[5], ARRAY[1,NULL], '{1,2}'::int[], ARRAY[]::int[]",
                &["{1,2,3} 2 NULL {1,NULL} {1,2} {}"],
            ),
            (
                "SELECT 1 = ANY(ARRAY[1,2]), 3 = ANY(ARRAY[1,2]), 3 <> ALL(ARRAY[1,2]), 2 > ALL(ARRAY[1,NULL]), 'b' LIKE ANY(ARRAY['a%','b%'])",
                &["t f t NULL t"],
            ),
            (
                "SELECT array_length(ARRAY[1,2], 1), cardinality(ARRAY[1,2,3]), array_append(ARRAY[1], 2), ARRAY[1] || ARRAY[2], 0 || ARRAY[1], array_position(ARRAY['a','b'], 'b')",
                &["2 3 {1,2} {1,2} {0,1} 2"],
            ),
            (
                "SELECT array_to_string(ARRAY[1,NULL,3], ','), array_to_string(ARRAY[1,NULL], ',', '*'), string_to_array('a,b', ','), array_remove(ARRAY[1,2,1], 1)",
                &["1,3 1,* {a,b} {2}"],
            ),
            (
                "SELECT ARRAY[1,2] @> ARRAY[1], ARRAY[1] && ARRAY[2], (ARRAY[1,2,3])[2:3], ARRAY[1,2]::text[], ARRAY[1,2] = ARRAY[1,2]",
                &["t f {2,3} {1,2} t"],
            ),
            (
                "SELECT '{\"a\": {\"b\": [1, 2]}}'::jsonb -> 'a' -> 'b' -> 1, '{\"a\": 1}'::jsonb ->> 'a', '{\"a\": [1,2]}'::jsonb #>> '{a,1}'",
                &["2 1 2"],
            ),
            (
                "SELECT '{\"b\": 1, \"a\": 2}'::jsonb, '{\"b\":1}'::json, '[1,2]'::jsonb @> '[1]', '{\"a\":1}'::jsonb ? 'a'",
                &["{\"a\": 2, \"b\": 1} {\"b\":1} t t"],
            ),
            (
                "SELECT json_build_object('a', 1 = 1, 'n', NULL, 's', 'x') ->> 's', json_build_object('a', 1, 'b', 'x'), jsonb_build_object('a', ARRAY[1,2])",
                &["x {\"a\" : 1, \"b\" : \"x\"} {\"a\": [1, 2]}"],
            ),
            (
                "SELECT to_jsonb(1.50), to_json('a\"b'::text), jsonb_typeof('[]'), jsonb_array_length('[1,2]'), jsonb_set('{\"a\":1}', '{a}', '2')",
                &["1.50 \"a\\\"b\" array 2 {\"a\": 2}"],
            ),
            (
                "SELECT '{\"a\":1}'::jsonb || '{\"b\":2}', '{\"a\":1,\"b\":2}'::jsonb - 'a', ('{\"a\": 5}'::jsonb ->> 'a')::int + 1",
                &["{\"a\": 1, \"b\": 2} {\"b\": 2} 6"],
            ),
            (
                "SELECT ROW(1, 2), (ROW(1, 2.5)).f2, ROW(1, 2) < ROW(1, 3), (1, 2) = ROW(1, 2), ROW(1, NULL) = ROW(2, 3), ROW('a')",
                &["(1,2) 2.5 t t f (a)"],
            ),
            ("SELECT 'nope'::jsonb", &["!22P02"]),
            ("SELECT ('[1, \"2\", null]'::jsonb)['1'], ('{\"a\": 5}'::jsonb)['a'], ('[7]'::jsonb)[0]", &["\"2\" 5 7"]),
            ("SELECT x FROM unnest(ARRAY[3,1,2]) AS t(x) ORDER BY x", &["1", "2", "3"]),
            ("SELECT * FROM generate_series(1, 3)", &["1", "2", "3"]),
            ("SELECT g, g * 2 FROM generate_series(1, 10, 4) g", &["1 2", "5 10", "9 18"]),
            ("SELECT a, b FROM unnest(ARRAY[1,2], ARRAY['x','y']) AS t(a, b)", &["1 x", "2 y"]),
            ("SELECT v, n FROM unnest(ARRAY['x','y']) WITH ORDINALITY AS t(v, n)", &["x 1", "y 2"]),
            ("SELECT unnest(ARRAY[1,2]) + 1", &["2", "3"]),
            ("SELECT key, value FROM jsonb_each('{\"a\": 1, \"b\": \"x\"}')", &["a 1", "b \"x\""]),
            ("SELECT jsonb_each('{\"3\": 4, \"1\": \"x\"}') ORDER BY 1", &["(1,\"\"\"x\"\"\")", "(3,4)"]),
            ("SELECT value FROM jsonb_array_elements('[1, {\"a\": 2}]') AS t(value)", &["1", "{\"a\": 2}"]),
            ("SELECT ARRAY(SELECT x FROM (VALUES (1), (2)) t(x) ORDER BY x)", &["{1,2}"]),
        ],
    );
}

#[test]
fn session_and_catalog() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (a int PRIMARY KEY, b varchar(4)); COMMENT ON COLUMN t.b IS 'note'; CREATE VIEW v AS SELECT a FROM t");
    check(
        &bench,
        &[
            ("SELECT current_schema(), current_schemas(false)::text, has_schema_privilege('public', 'USAGE')", &["public {public} t"]),
            (
                "SELECT version() LIKE 'PostgreSQL%', current_database(), session_user, pg_encoding_to_char(6), pg_get_userbyid(10)",
                &["t millpond millpond UTF8 millpond"],
            ),
            (
                "SELECT 't'::regclass, 't'::regclass::oid, pg_table_is_visible('t'::regclass), format_type(1043, 8), format_type(23, NULL)",
                &["t 16384 t character varying(4) integer"],
            ),
            ("SELECT col_description('t'::regclass, 2), pg_get_viewdef('v'::regclass), 'nosuch'::regclass IS NULL", &["!42P01"]),
            (
                "SELECT col_description('t'::regclass, 2), pg_get_viewdef('v'::regclass), obj_description('t'::regclass, 'pg_class') IS NULL",
                &["note  SELECT a FROM public.t; t"],
            ),
            (
                "SELECT pg_get_viewdef('public.v', true), pg_get_viewdef('t') IS NULL, pg_get_indexdef(536887296)",
                &[" SELECT a FROM public.t; t CREATE UNIQUE INDEX t_pkey ON public.t USING btree (a)"],
            ),
            ("SELECT pg_get_viewdef('nosuch')", &["!42P01"]),
            (
                "SELECT pg_get_ruledef(939540481, true)",
                &["CREATE RULE \"_RETURN\" AS\n    ON SELECT TO public.v DO INSTEAD  SELECT a FROM public.t;"],
            ),
            ("SELECT option_name, option_value FROM pg_options_to_table(ARRAY['a=1', 'b=x=y', 'c'])", &["a 1", "b x=y", "c NULL"]),
            ("SELECT pg_size_pretty(10240::bigint), pg_typeof(1), pg_typeof('x'), 'int4'::regtype", &["10 kB integer unknown integer"]),
            ("SELECT pg_typeof(sum(x)), pg_typeof(NULL) FROM (VALUES (1), (2)) t(x)", &["bigint unknown"]),
        ],
    );
}
