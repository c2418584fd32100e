package pgstore

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// ReaperOptions are what [PrintReaper] may be given. Nil and zero values are the
// defaults.
type ReaperOptions struct {
	// Schema is where the tables are. Default: the first of the search path.
	Schema string
	// Schedule is when it runs, as pg_cron has it. Default: every minute.
	Schedule string
	// Batch is how many rows one transaction deletes. Default 1000.
	Batch int
}

// PrintReaper returns a script that lets the database forget by itself what is due
// and final: the procedure retrysafe_reap, which does what [Store.Purge] does, and
// a job of the extension pg_cron that calls it. Run it in the database that pg_cron
// is in, as a role that may read, update and delete the keys; run again it replaces
// what it made. It goes well with any number of Purges.
func PrintReaper(opts *ReaperOptions) (string, error) {
	var o ReaperOptions
	if opts != nil {
		o = *opts
	}
	if o.Batch < 0 {
		return "", errors.New("pgstore: an option is negative")
	}
	job := "retrysafe reaper"
	if o.Schema != "" {
		job += " of " + o.Schema
	}
	call := "CALL " + qualified(o.Schema, "retrysafe_reap") + "(" + strconv.Itoa(cmp.Or(o.Batch, purgeBatch)) + ")"
	return procedure(o.Schema) + "\n\nSELECT cron.schedule(" + literal(job) + ", " + literal(cmp.Or(o.Schedule, "* * * * *")) + ", " + literal(call) + ");\n", nil
}

// procedure makes retrysafe_reap, out of the statements of a purge.
func procedure(schema string) string {
	inside := strings.NewReplacer("$1", "kept", "$2", "batch")
	body := strings.NewReplacer("{purge}", inside.Replace(purgeKeys), "{postpone}", inside.Replace(postponeKeys)).Replace(reap)
	body = placeholders(tableIn(schema)).Replace(body)
	quote := "$reap$"
	for strings.Contains(body, quote) { // in the name of the schema
		quote = "$_" + quote[1:]
	}
	return "CREATE OR REPLACE PROCEDURE " + qualified(schema, "retrysafe_reap") + "(batch integer) LANGUAGE plpgsql AS " + quote + body + quote + ";"
}

// reap goes through the retentions in use. Each batch is a transaction, and is
// followed by a rest for as long as it took. Its clock is that of its beginning.
const reap = `
DECLARE
    kept  integer := -1;
    gone  bigint;
    began timestamptz;
BEGIN
    LOOP
        SELECT min(k.keep) INTO kept FROM {keys} k WHERE k.keep > kept AND k.keep >= 0 AND k.keep < {accepted};
        EXIT WHEN kept IS NULL;
        LOOP
            began := clock_timestamp();
            PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true);
            {purge};
            GET DIAGNOSTICS gone = ROW_COUNT;
            COMMIT;
            EXIT WHEN gone < batch;
            PERFORM pg_sleep(extract(epoch FROM clock_timestamp() - began));
        END LOOP;
        {postpone};
        COMMIT;
    END LOOP;
END
`

// literal is s as a string in SQL, whatever the server's settings.
func literal(s string) string {
	if strings.Contains(s, `\`) {
		return ` E'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}
