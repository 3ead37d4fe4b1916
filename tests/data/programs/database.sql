CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, weight REAL, payload BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO item SELECT i, 'item-' || (i * 7919 % 60013), (i * 31 % 1009) / 7.0, zeroblob(i % 200) FROM n;
CREATE INDEX by_name ON item (name);
CREATE INDEX by_weight ON item (weight, id);
SELECT count(*), sum(id), round(sum(weight), 3), sum(length(payload)) FROM item;
SELECT a.id, b.id FROM item a JOIN item b ON a.name = 'item-' || b.id WHERE b.id % 5000 = 3 ORDER BY 1, 2;
UPDATE item SET payload = zeroblob(3000) WHERE id % 40 = 0;
DELETE FROM item WHERE id % 3 = 0;
VACUUM;
SELECT count(*), sum(length(payload)) FROM item;
SELECT group_concat(name) FROM (SELECT name FROM item ORDER BY weight DESC, name LIMIT 20);
PRAGMA integrity_check;
