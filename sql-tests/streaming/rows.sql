-- Filters, projections with scalar functions, unions.

SELECT id, k + 1 AS k1, upper(s) AS up FROM t WHERE v > 2 OR v IS NULL;
SELECT id, CASE WHEN v > 3 THEN 'high' WHEN v IS NULL THEN 'none' ELSE 'low' END AS grade, coalesce(s, '-') || ':' || id AS label FROM t;
SELECT k, v FROM bag;
SELECT k * 2 AS twice, abs(v) AS size FROM bag WHERE NOT (k = 1 AND v > 0);
SELECT id, d * 2 AS twice, d + 0.5 AS more, f / 2 AS half, NOT b AS other FROM m;
SELECT id, date_trunc('hour', at) AS hour, at + INTERVAL '90 minutes' AS later, day + 1 AS next, extract(minute FROM at) AS minute FROM m;
SELECT id, length(s) AS size, s LIKE 'a%' AS starts, s IN ('aa', 'b') AS among, substr(s, 2) AS rest, nullif(s, '') AS some FROM t;
SELECT id FROM t UNION ALL SELECT t_id FROM u;
SELECT k FROM t UNION ALL SELECT k FROM t UNION ALL SELECT k FROM bag;
SELECT id, v FROM t UNION ALL SELECT 7, 8;
SELECT 1 AS one, 'a' AS two;
SELECT DISTINCT k, v FROM bag;
SELECT DISTINCT s IS NULL AS missing, k FROM t;
SELECT k FROM bag UNION SELECT k FROM t;
SELECT k, v FROM bag INTERSECT SELECT k, v FROM t;
SELECT k, v FROM bag EXCEPT SELECT k, v FROM t;
SELECT k, n FROM busy WHERE n > 2;
SELECT id, b IS TRUE AS yes, b IS NOT TRUE AS not_yes, b IS NULL AS unknown FROM m WHERE b IS DISTINCT FROM false;
