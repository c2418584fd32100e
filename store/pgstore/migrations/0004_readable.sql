-- works from 2
--
-- A view of the keys for people: what the columns head and tail hold, decoded. No program
-- of retrysafe reads it. It checks no checksum: a damaged row shows what can still be
-- read of it, and NULL for the rest.

-- Bytes as text. Bytes that are no text are shown in hexadecimal behind \x, and a zero
-- byte at the beginning, which the scopes of retrysafe itself have, as \0.
CREATE FUNCTION {text_of} (b bytea) RETURNS text LANGUAGE plpgsql STABLE STRICT AS $function$
DECLARE
    plain text := encode(b, 'escape');
BEGIN
    IF position('\' IN plain) = 0 THEN -- ASCII without zero bytes, as almost all texts are
        RETURN plain;
    ELSIF length(b) > 1 AND get_byte(b, 0) = 0 THEN
        RETURN '\0' || convert_from(substr(b, 2), 'UTF8');
    END IF;
    RETURN convert_from(b, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN '\x' || encode(b, 'hex');
END
$function$;

-- The fields of a row. A number is stored as a varint, seven bits in each byte from the
-- lowest on; a text behind its length. The search path is that of the migration, so that
-- the function above is found whatever the reader's is.
CREATE FUNCTION {fields_of} (head bytea, tail bytea, OUT sealed boolean, OUT scope text, OUT key text, OUT operation text, OUT attempt bigint,
    OUT status bigint, OUT reason text, OUT provider_ref text) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $function$
DECLARE
    b       bytea := head || ''::bytea; -- read once, if it is stored apart
    last    integer := length(b) - 4;   -- behind it is the checksum
    at      integer := 1;
    flags   integer;
    n       bigint;
    shift   integer;
    byte    integer;
    kind    integer;
    packed  integer;
    version integer;
BEGIN
    flags := get_byte(b, 0);
    IF flags >> 4 <> 1 THEN
        RETURN; -- another layout
    END IF;
    at := at + (flags & 1) + 32; -- the fingerprint
    attempt := 1;
    IF flags & 2 <> 0 THEN
        n := 0; shift := 0;
        LOOP
            byte := get_byte(b, at); at := at + 1;
            n := n | ((byte & 127)::bigint << shift); shift := shift + 7;
            EXIT WHEN byte < 128;
        END LOOP;
        attempt := ((n >> 1) & 9223372036854775807) # -(n & 1);
    END IF;
    sealed := flags & 4 <> 0;
    FOR field IN 1..3 LOOP -- scope, key and operation
        kind := get_byte(b, at); at := at + 1;
        IF field < 3 AND kind = 1 THEN -- a UUID in 16 bytes
            n := 16;
        ELSE
            n := 0; shift := 0;
            LOOP
                byte := get_byte(b, at); at := at + 1;
                n := n | ((byte & 127)::bigint << shift); shift := shift + 7;
                EXIT WHEN byte < 128;
            END LOOP;
        END IF;
        IF n < 0 OR at + n > last OR field < 3 AND kind > 1 OR field = 3 AND kind > 4 THEN
            RAISE data_exception;
        END IF;
        CASE field
            WHEN 1 THEN scope := CASE kind WHEN 1 THEN encode(substr(b, at + 1, 16), 'hex')::uuid::text ELSE {text_of}(substr(b, at + 1, n::integer)) END;
            WHEN 2 THEN key := CASE kind WHEN 1 THEN encode(substr(b, at + 1, 16), 'hex')::uuid::text ELSE {text_of}(substr(b, at + 1, n::integer)) END;
            ELSE operation := (ARRAY['', 'POST ', 'PUT ', 'PATCH ', 'DELETE '])[kind + 1] || {text_of}(substr(b, at + 1, n::integer));
        END CASE;
        at := at + n::integer;
    END LOOP;

    b := tail || ''::bytea;
    last := length(b) - 4;
    IF get_byte(b, 0) >> 4 <> 1 THEN
        RAISE data_exception;
    END IF;
    version := get_byte(b, 0) & 15;
    packed := get_byte(b, 1);
    at := 2 + CASE WHEN version = 15 THEN 1 ELSE 0 END + CASE WHEN packed >> 2 & 3 = 3 THEN 2 ELSE 0 END;
    LOOP -- the retention
        byte := get_byte(b, at); at := at + 1;
        EXIT WHEN byte < 128;
    END LOOP;
    provider_ref := ''; reason := '';
    FOR field IN 1..3 LOOP -- the provider's reference, the reason and the notes
        CONTINUE WHEN field < 3 AND packed & 64 = 0 OR field = 3 AND packed & 128 = 0;
        n := 0; shift := 0;
        LOOP
            byte := get_byte(b, at); at := at + 1;
            n := n | ((byte & 127)::bigint << shift); shift := shift + 7;
            EXIT WHEN byte < 128;
        END LOOP;
        IF n < 0 OR at + n > last THEN
            RAISE data_exception;
        END IF;
        CASE field
            WHEN 1 THEN provider_ref := {text_of}(substr(b, at + 1, n::integer));
            WHEN 2 THEN reason := {text_of}(substr(b, at + 1, n::integer));
            ELSE NULL;
        END CASE;
        at := at + n::integer;
    END LOOP;
    IF at < last THEN -- the answer, which begins with its status
        n := 0; shift := 0;
        LOOP
            byte := get_byte(b, at); at := at + 1;
            n := n | ((byte & 127)::bigint << shift); shift := shift + 7;
            EXIT WHEN byte < 128;
        END LOOP;
        status := ((n >> 1) & 9223372036854775807) # -(n & 1);
    END IF;
    IF sealed THEN
        scope := 'encrypted';
        key := 'encrypted';
        reason := CASE reason WHEN '' THEN '' ELSE 'encrypted' END;
    END IF;
EXCEPTION WHEN OTHERS THEN -- what was read before stays
    NULL;
END
$function$;

CREATE FUNCTION {time_of} (micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $function$
    SELECT CASE WHEN micros > 0 AND micros < 253402300800000000 THEN timestamptz 'epoch' + micros * interval '1 microsecond' END
$function$;

CREATE VIEW {readable} AS
SELECT k.id,
       f.scope, f.key, f.operation,
       coalesce((ARRAY['accepted', 'in_progress', 'completed', 'retryable', 'unknown', 'expired'])[k.state], 'state(' || k.state || ')') AS state,
       f.attempt, f.status, f.reason,
       {time_of}(k.created) AS created, {time_of}(k.revision) AS updated, {time_of}(k.deadline) AS deadline,
       f.provider_ref, f.sealed
  FROM {keys} k CROSS JOIN LATERAL {fields_of}(k.head, k.tail) f;
