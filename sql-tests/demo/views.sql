CREATE MATERIALIZED VIEW hourly_departures AS
    SELECT a.name AS airline, d.window_start, count(*) AS departures, round(avg(d.dep_delay), 2) AS mean_delay
    FROM TUMBLE(departures, departed_at, INTERVAL '1 hour') AS d JOIN airlines AS a ON a.carrier = d.carrier
    GROUP BY a.name, d.window_start;

CREATE MATERIALIZED VIEW arrival_delay AS
    SELECT d.origin, count(*) AS arrivals, round(avg(a.arr_delay), 2) AS mean_delay
    FROM departures AS d JOIN arrivals AS a ON a.flight_id = d.flight_id
    GROUP BY d.origin;

CREATE MATERIALIZED VIEW routes AS
    SELECT origin, dest, count(*) AS flights FROM departures GROUP BY origin, dest;

CREATE MATERIALIZED VIEW busiest_routes AS
    SELECT origin, dest, flights, rank
    FROM (SELECT origin, dest, flights, row_number() OVER (PARTITION BY origin ORDER BY flights DESC) AS rank FROM routes) AS r
    WHERE rank <= 3;

CREATE MATERIALIZED VIEW never_arrived AS
    SELECT d.flight_id, d.carrier, d.flight, d.origin, d.dest, d.departed_at
    FROM departures AS d
    WHERE d.departed_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM arrivals AS a WHERE a.flight_id = d.flight_id);

CREATE MATERIALIZED VIEW unknown_planes AS
    SELECT count(*) AS departures
    FROM departures AS d
    WHERE NOT EXISTS (SELECT 1 FROM planes AS p WHERE p.tailnum = d.tailnum);
