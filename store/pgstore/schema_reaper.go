package pgstore

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// ReaperOptions configure [PrintReaper]. Nil and zero values are the defaults.
type ReaperOptions struct {
	// Schema is the schema of the tables. Default: the first of the search path.
	Schema string
	// Schedule is when the job runs, in the syntax of pg_cron. Default: every minute.
	Schedule string
	// Batch is how many rows one transaction deletes. Default 1000.
	Batch int
}

// PrintReaper returns a script that makes the database purge by itself: the procedure
// retrysafe_reap, which does what [Store.Purge] does, and a job of the extension pg_cron
// that calls it. Run the script in the database that pg_cron is in, as a role that may
// read, update and delete keys and receipts. Run again, it replaces procedure and job. The job may
// run beside any number of Purges.
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

// procedure is the statement that creates retrysafe_reap, out of the statements of a purge.
func procedure(schema string) string {
	inside := strings.NewReplacer("$1", "kept", "$2", "batch")
	part := func(template string) string {
		_, sql := cutComment(template)
		return inside.Replace(sql)
	}
	_, receipts := cutComment(purgeReceipts)
	body := variant(reap, "{purge}", part(purgeKeys), "{rebucket settled}", part(rebucketSettledKeys), "{purge receipts}", strings.ReplaceAll(receipts, "$1", "batch"))
	body = tableNames(schema).Replace(expand(body))
	quote := "$reap$"
	for strings.Contains(body, quote) { // the schema's name may contain it
		quote = "$_" + quote[1:]
	}
	return "CREATE OR REPLACE PROCEDURE " + qualified(schema, "retrysafe_reap") + "(batch integer) LANGUAGE plpgsql AS " + quote + body + quote + ";"
}

// reap goes through the retentions in use, and then the receipts. Each batch is a transaction, followed by a
// pause for as long as it took. Its clock is that of the batch's beginning.
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
        {rebucket settled};
        COMMIT;
    END LOOP;
    LOOP
        began := clock_timestamp();
        {purge receipts};
        GET DIAGNOSTICS gone = ROW_COUNT;
        COMMIT;
        EXIT WHEN gone < batch;
        PERFORM pg_sleep(extract(epoch FROM clock_timestamp() - began));
    END LOOP;
END
`

// literal is s as a string literal of SQL, for any setting of the server's.
func literal(s string) string {
	if strings.Contains(s, `\`) {
		return ` E'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}
