package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysErase(stores *storeFlags) *cobra.Command {
	return p.acting(stores, (*operator.Desk).Erase, true, "erase",
		"The content is gone then for good: body, headers, request, checkpoint, reason, notes. The key stays used.",
		&cobra.Command{
			Short: "Take all content out of a record, and leave the key used",
			Long: `Takes all content out of a record whose operation is over: the answer's body and
headers, the request, the checkpoint, the reason, the texts of notes. The key stays
used until it expires: a retry is told that the operation was executed and its answer
not kept, and nothing runs again. It is for data that must go.

What is in flight or unknown is refused: settle it first. Do not write names into
--why: the audit keeps it. Copies that the database keeps on its own (dead rows, logs,
backups) go as it goes about them: see docs/runbook.md.

` + actHelp,
			Example: `  retrysafe keys erase tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "request 42 for erasure"`,
		})
}
