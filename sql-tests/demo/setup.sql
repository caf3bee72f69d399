-- The flights that left New York City in 2013, replayed as streams: about a year a minute.
\set ON_ERROR_STOP on

CREATE TABLE airlines (carrier TEXT PRIMARY KEY, name TEXT);
CREATE TABLE airports (faa TEXT PRIMARY KEY, name TEXT, lat DOUBLE PRECISION, lon DOUBLE PRECISION, alt INT, tz INT, dst TEXT, tzone TEXT);
CREATE TABLE planes (tailnum TEXT PRIMARY KEY, year INT, type TEXT, manufacturer TEXT, model TEXT, engines INT, seats INT, speed INT, engine TEXT);

\cd :data
\copy airlines FROM 'airlines.csv' WITH (FORMAT csv, HEADER)
\copy airports FROM 'airports.csv' WITH (FORMAT csv, HEADER)
\copy planes FROM 'planes.csv' WITH (FORMAT csv, HEADER)

-- Rows come in order of scheduled departure, so the event time departed_at comes out of order by up to 22 hours.
CREATE SOURCE departures (WATERMARK FOR departed_at AS departed_at - INTERVAL '22 hours')
    WITH (connector = 'file', path = :'departures', format = 'parquet', replay_speed = :'speed', replay_column = 'scheduled_at');
CREATE SOURCE arrivals (WATERMARK FOR arrived_at AS arrived_at - INTERVAL '5 minutes')
    WITH (connector = 'file', path = :'arrivals', format = 'parquet', replay_speed = :'speed');
CREATE SOURCE weather (WATERMARK FOR observed_at AS observed_at - INTERVAL '5 minutes')
    WITH (connector = 'file', path = :'weather', format = 'parquet', replay_speed = :'speed');

\i :views
