-- works from 2
--
-- A view of the keys for people: what the column rec holds, decoded. No program of
-- retrysafe reads it. It checks no checksum: a damaged row shows what can still be read of
-- it, and NULL for the rest.
--
-- A record is a sequence of fields. From byte 55 on each is a number, seven bits in each
-- byte from the lowest on, and for a text or bytes that number is the length of what
-- follows. The recursion goes through the record byte by byte until the status:
-- fields 0 to 5 are scope, key, operation, provider's reference, reason and phase; 6, 8
-- and 10 say whether the next field is there: the encrypted key, the request, the
-- checkpoint; 12 are the notes, 13 to 18 attempt, retention, revision, deadline, created
-- and updated; 19 says whether there is an answer, and 20 is its status.
--
-- A zero byte at the beginning of a text, which the scopes of retrysafe itself have, is
-- shown as \0; a text with another zero byte in hexadecimal behind \x.
CREATE VIEW retrysafe_keys_readable AS
SELECT lower(hex(k.id)) AS id,
       CASE json_extract(d.value, '$.6') WHEN 1 THEN 'encrypted' ELSE json_extract(d.value, '$.0') END AS scope,
       CASE json_extract(d.value, '$.6') WHEN 1 THEN 'encrypted' ELSE json_extract(d.value, '$.1') END AS key,
       json_extract(d.value, '$.2') AS operation,
       CASE k.due >> 56 WHEN 1 THEN 'accepted' WHEN 2 THEN 'in_progress' WHEN 3 THEN 'completed' WHEN 4 THEN 'retryable' WHEN 5 THEN 'unknown' WHEN 6 THEN 'expired'
            ELSE 'state(' || (k.due >> 56) || ')' END AS state,
       CASE json_extract(d.value, '$.13') & 1 WHEN 0 THEN json_extract(d.value, '$.13') >> 1 & 9223372036854775807 WHEN 1 THEN ~(json_extract(d.value, '$.13') >> 1 & 9223372036854775807) END AS attempt,
       CASE json_extract(d.value, '$.20') & 1 WHEN 0 THEN json_extract(d.value, '$.20') >> 1 & 9223372036854775807 WHEN 1 THEN ~(json_extract(d.value, '$.20') >> 1 & 9223372036854775807) END AS status,
       CASE WHEN json_extract(d.value, '$.6') = 1 AND json_extract(d.value, '$.4') <> '' THEN 'encrypted' ELSE json_extract(d.value, '$.4') END AS reason,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(CASE json_extract(d.value, '$.17') & 1 WHEN 0 THEN json_extract(d.value, '$.17') >> 1 & 9223372036854775807 WHEN 1 THEN ~(json_extract(d.value, '$.17') >> 1 & 9223372036854775807) END, 0) / 1000000.0, 'unixepoch') AS created,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(CASE json_extract(d.value, '$.18') & 1 WHEN 0 THEN json_extract(d.value, '$.18') >> 1 & 9223372036854775807 WHEN 1 THEN ~(json_extract(d.value, '$.18') >> 1 & 9223372036854775807) END, 0) / 1000000.0, 'unixepoch') AS updated,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif((k.due & 72057594037927935), 0) / 1000000.0, 'unixepoch') AS deadline,
       json_extract(d.value, '$.3') AS provider_ref,
       json_extract(d.value, '$.6') AS sealed
  FROM retrysafe_keys AS k
  JOIN json_each('[' || (
       -- Every other step reads the byte b at a position; the step behind it goes by that byte.
       WITH RECURSIVE walk (f, at, shift, acc, b, done, start, val) AS (
           SELECT 0, 55, 0, 0, NULL, NULL, NULL, NULL WHERE substr(k.rec, 1, 1) = x'01'
           UNION ALL
           SELECT CASE WHEN b IS NULL OR b > 127 THEN f
                       WHEN (acc | ((b & 127) << shift)) = 0 AND f IN (6, 8, 10) THEN f + 2
                       WHEN (acc | ((b & 127) << shift)) = 0 AND f = 19 THEN 21
                       ELSE f + 1 END,
                  CASE WHEN b IS NULL THEN at
                       WHEN b > 127 OR f IN (6, 8, 10) OR f > 12 THEN at + 1
                       ELSE at + 1 + (acc | ((b & 127) << shift)) END,
                  CASE WHEN b IS NULL THEN shift WHEN b > 127 THEN shift + 7 ELSE 0 END,
                  CASE WHEN b IS NULL THEN acc WHEN b > 127 THEN (acc | ((b & 127) << shift)) ELSE 0 END,
                  CASE WHEN b IS NULL THEN 16 * instr('123456789ABCDEF', substr(hex(substr(k.rec, at, 1)), 1, 1)) + instr('123456789ABCDEF', substr(hex(substr(k.rec, at, 1)), 2, 1)) END,
                  CASE WHEN b <= 127 THEN f END,
                  at + 1,
                  (acc | ((b & 127) << shift))
             FROM walk
            WHERE f < 21 AND shift < 70 AND at <= length(k.rec) - 4
              AND (b IS NULL OR b > 127 OR f IN (6, 8, 10) OR f > 12 OR (acc | ((b & 127) << shift)) BETWEEN 0 AND length(k.rec) - 4 - at))
       SELECT json_group_object(done, CASE WHEN done > 5 THEN val
                                           WHEN instr(raw, x'00') = 0 THEN CAST(raw AS TEXT)
                                           WHEN length(raw) > 1 AND substr(raw, 1, 1) = x'00' AND instr(substr(raw, 2), x'00') = 0 THEN '\0' || CAST(substr(raw, 2) AS TEXT)
                                           ELSE '\x' || lower(hex(raw)) END)
         FROM (SELECT done, val, substr(k.rec, start, val) AS raw FROM walk WHERE done IN (0, 1, 2, 3, 4, 6, 13, 17, 18, 20))) || ']') AS d;
