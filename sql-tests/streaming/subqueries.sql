-- EXISTS, IN, NOT IN, ANY, ALL, scalar subqueries, correlated and not.

SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id);
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.w > t.v);
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.w > t.v);
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u) AND v > 1;
SELECT k, v FROM bag WHERE k IN (SELECT t_id FROM u);
SELECT k, v FROM bag WHERE k NOT IN (SELECT t_id FROM u WHERE t_id IS NOT NULL);
SELECT k, v FROM bag WHERE k NOT IN (SELECT t_id FROM u WHERE w > 2);
SELECT id FROM t WHERE (k, v) IN (SELECT t_id, w FROM u);
SELECT id FROM t WHERE v > 5 OR id IN (SELECT t_id FROM u);
SELECT id, k IN (SELECT t_id FROM u WHERE u.w = t.v) AS found FROM t;
SELECT id FROM t WHERE NOT (k IN (SELECT t_id FROM u WHERE u.w = t.v) AND v > 1);
SELECT id FROM t WHERE v > (SELECT avg(w) FROM u);
SELECT id, (SELECT sum(w) FROM u WHERE u.t_id = t.id) AS x FROM t;
SELECT id, (SELECT count(*) FROM u WHERE u.t_id = t.id) AS n FROM t;
SELECT id FROM t WHERE v = (SELECT count(*) FROM u WHERE u.t_id = t.id);
SELECT id FROM t WHERE v > ALL (SELECT w FROM u WHERE u.t_id = t.id);
SELECT id FROM t WHERE v < ANY (SELECT w FROM u);
SELECT id, (SELECT max(v) FROM bag) - v AS below FROM t;
SELECT t.id, x.n FROM t LEFT JOIN LATERAL (SELECT count(*) AS n, sum(w) AS sw FROM u WHERE u.t_id = t.k) AS x ON x.sw > 1;
SELECT k FROM (SELECT k, sum(v) AS sv FROM bag GROUP BY k) AS x WHERE sv > (SELECT avg(v) FROM bag);
SELECT k, sum(v) AS sv FROM bag GROUP BY k HAVING sum(v) > (SELECT max(w) FROM u);
WITH big AS (SELECT id, k FROM t WHERE v > 1) SELECT a.id, b.id AS other FROM big a JOIN big b ON a.k = b.k AND a.id <> b.id;
SELECT id, (SELECT w FROM u WHERE u.t_id = t.id ORDER BY w DESC NULLS LAST, u.id LIMIT 1) AS top FROM t;
SELECT t.id, x.uid FROM t CROSS JOIN LATERAL (SELECT id AS uid FROM u WHERE u.t_id = t.k AND w > 1 ORDER BY id LIMIT 2) AS x;
