-- Event-time windows in both spellings, beside the same said with PostgreSQL's functions.

SELECT window_start, b, count(*) AS n, sum(d) AS sd FROM TUMBLE(m, at, INTERVAL '15 minutes') GROUP BY window_start, b;
-- postgres
SELECT date_bin('15 minutes', at, TIMESTAMP '2000-01-01') AS window_start, b, count(*) AS n, sum(d) AS sd FROM m WHERE at IS NOT NULL GROUP BY 1, 2;
SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(at), INTERVAL '10' MINUTE)) GROUP BY window_start, window_end;
-- postgres
SELECT date_bin('10 minutes', at, TIMESTAMP '2000-01-01') AS window_start, date_bin('10 minutes', at, TIMESTAMP '2000-01-01') + INTERVAL '10 minutes' AS window_end,
  count(*) AS n FROM m WHERE at IS NOT NULL GROUP BY 1, 2;
SELECT window_start, window_end, count(*) AS n, max(f) AS hi FROM HOP(m, at, INTERVAL '10 minutes', INTERVAL '30 minutes') GROUP BY window_start, window_end;
-- postgres
SELECT start AS window_start, start + INTERVAL '30 minutes' AS window_end, count(*) AS n, max(f) AS hi FROM m
  CROSS JOIN LATERAL (SELECT date_bin('10 minutes', at, TIMESTAMP '2000-01-01') - i * INTERVAL '10 minutes' AS start FROM generate_series(0, 2) AS i) AS w
  WHERE at IS NOT NULL GROUP BY start;
SELECT id, window_start FROM TABLE(HOP(TABLE m, DESCRIPTOR(at), INTERVAL '20' MINUTE, INTERVAL '40' MINUTE));
-- postgres
SELECT id, date_bin('20 minutes', at, TIMESTAMP '2000-01-01') - i * INTERVAL '20 minutes' AS window_start FROM m CROSS JOIN generate_series(0, 1) AS i
  WHERE at IS NOT NULL;
SELECT window_start, id, d FROM (
  SELECT window_start, id, d, row_number() OVER (PARTITION BY window_start ORDER BY d DESC NULLS LAST, id) AS rn
  FROM TUMBLE(m, at, INTERVAL '15 minutes')) AS x WHERE rn <= 2;
-- postgres
SELECT window_start, id, d FROM (
  SELECT window_start, id, d, row_number() OVER (PARTITION BY window_start ORDER BY d DESC NULLS LAST, id) AS rn
  FROM (SELECT *, date_bin('15 minutes', at, TIMESTAMP '2000-01-01') AS window_start FROM m WHERE at IS NOT NULL) AS y) AS x WHERE rn <= 2;
