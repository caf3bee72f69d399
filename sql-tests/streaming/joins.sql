-- Every kind of join, with NULL keys, duplicates and extra conditions.

SELECT t.id, u.id AS uid, u.w FROM t JOIN u ON u.t_id = t.id;
SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.t_id = t.id AND u.w > t.v;
SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.t_id = t.k AND t.v > 2;
SELECT t.id, u.id AS uid FROM t RIGHT JOIN u ON u.t_id = t.id;
SELECT t.id, u.id AS uid, t.s, u.s AS us FROM t FULL JOIN u ON u.t_id = t.k;
SELECT t.s, u.s AS us, count(*) AS n FROM t FULL JOIN u ON u.s = t.s AND u.w IS DISTINCT FROM t.v GROUP BY t.s, u.s;
-- postgres
SELECT ts AS s, us, count(*) AS n FROM (
  SELECT t.s AS ts, u.s AS us FROM t LEFT JOIN u ON u.s = t.s AND u.w IS DISTINCT FROM t.v
  UNION ALL SELECT NULL, u.s FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE u.s = t.s AND u.w IS DISTINCT FROM t.v)) AS x GROUP BY ts, us;
SELECT a.k, b.v FROM bag a JOIN bag b ON a.k = b.k AND a.v < b.v;
SELECT a.k, a.v, b.v AS bv FROM bag a FULL JOIN bag b ON a.k = b.v;
SELECT t.id, u.id AS uid FROM t JOIN u ON u.w > t.v;
SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.w > t.v AND u.id < 5;
SELECT t.id, b.k FROM t CROSS JOIN (SELECT DISTINCT k FROM bag) AS b WHERE t.v > 3;
SELECT t.id, u.id AS uid FROM t JOIN u ON u.t_id + 1 = t.id;
SELECT id, k, n FROM t JOIN busy USING (k);
SELECT t.id, busy.n FROM t LEFT JOIN busy ON busy.k IS NOT DISTINCT FROM t.k;
SELECT a.k, a.n, b.top FROM (SELECT k, count(*) AS n FROM bag GROUP BY k) a JOIN (SELECT k, max(v) AS top FROM bag GROUP BY k) b ON a.k = b.k;
SELECT a.k AS ak, b.k AS bk FROM (SELECT k, sum(v) AS x FROM bag GROUP BY k) a JOIN (SELECT k, sum(v) AS x FROM bag GROUP BY k) b ON a.x = b.x;
SELECT t.id, u.id AS uid, b.v FROM t JOIN u ON u.t_id = t.id JOIN bag b ON b.k = t.k;
SELECT t.id, u.id AS uid, b.v FROM t LEFT JOIN u ON u.t_id = t.id LEFT JOIN bag b ON b.k = u.w;
SELECT t.id, u.id AS uid, m.d FROM t FULL JOIN u ON u.id = t.id FULL JOIN m ON m.id = coalesce(t.id, u.id);
SELECT count(*) AS n FROM t, u, bag b WHERE t.id = u.t_id AND b.k = t.k AND b.v > 1;
SELECT t.id FROM t JOIN u ON (t.id IS NOT DISTINCT FROM u.t_id) AND t.v = u.w;
SELECT a.id, b.id AS other FROM t a JOIN t b ON a.k = b.k AND a.s = b.s AND a.id < b.id;
SELECT m.id, t.id AS tid FROM m JOIN t ON m.d = t.v;
SELECT id, s, w FROM t NATURAL JOIN (SELECT id, w FROM u) AS x;
SELECT a.id, b.id AS other FROM m a JOIN m b ON b.at BETWEEN a.at AND a.at + INTERVAL '20 minutes' AND a.b = b.b;
SELECT t.id, u.id AS uid, u.w FROM t ASOF JOIN u ON t.k = u.t_id AND t.v >= u.w;
-- postgres
SELECT t.id, x.id AS uid, x.w FROM t CROSS JOIN LATERAL (
  SELECT * FROM u WHERE u.t_id = t.k AND u.w <= t.v ORDER BY w DESC, id LIMIT 1) AS x;
SELECT b.k, b.v, u.id AS uid FROM bag b ASOF LEFT JOIN u ON b.k = u.t_id AND u.w > b.v;
-- postgres
SELECT b.k, b.v, x.id AS uid FROM bag b LEFT JOIN LATERAL (SELECT * FROM u WHERE u.t_id = b.k AND u.w > b.v ORDER BY w, id LIMIT 1) AS x ON true;
SELECT t.id, b.v FROM t ASOF JOIN bag b ON b.k = t.k AND b.v < t.v;
-- postgres
SELECT t.id, x.v FROM t CROSS JOIN LATERAL (SELECT v FROM bag b WHERE b.k = t.k AND b.v < t.v ORDER BY v DESC LIMIT 1) AS x;
SELECT x.id, y.id AS y_id, x.at FROM m x JOIN m y ON y.b = x.b AND y.at BETWEEN x.at AND x.at + INTERVAL '10 minutes';
SELECT x.id, x.at, y.at AS y_at FROM m x LEFT JOIN m y ON y.b = x.b AND y.at > x.at - INTERVAL '15 minutes' AND y.at < x.at;
SELECT x.id, y.id AS y_id FROM m x FULL JOIN m y ON x.at = y.at AND x.b = y.b;
SELECT id FROM m x WHERE NOT EXISTS (SELECT 1 FROM m y WHERE y.b = x.b AND y.at >= x.at + INTERVAL '5 minutes');
