package keys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

func exportCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var bodies bool
	cmd := &cobra.Command{
		Use:   "export [SCOPE] KEY",
		Short: "Write all that is known of a key as one JSON object, for a bug report",
		Long: `Writes one JSON object with the record of a key and its notes, what operators did to it,
the versions of the program and of the store's schema, and hashes of the configuration.
Scope, key, bodies and headers are hidden; --with-bodies shows them, with the stored
request. Reasons, notes and the names of operators are always there: read it before you
send it.

` + keyArgHelp,
		Example: `  retrysafe keys export 55679e8a463c13f3 > bundle.json
  # with everything, for your own eyes
  retrysafe keys export tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --with-bodies`,
		Args: oneKey,
	}
	key := addKeyArg(cmd)
	cmd.Flags().BoolVar(&bodies, "with-bodies", false, "show scope, key, headers, bodies and the stored request")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		s, err := open(ctx, env, target)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		ref, err := key.find(ctx, env, s, args)
		if err != nil {
			return err
		}
		b, err := newBundle(ctx, s, ref, bodies)
		if err != nil {
			return err
		}
		if target.Config != "" {
			text, err := os.ReadFile(target.Config)
			if err != nil {
				return exit.Usagef("%v", err)
			}
			b.Configuration.File = sum(text)
		}
		return terminal.WriteJSON(env.Out, b)
	})
	return cmd
}

// A bundle is all that is known of a key.
type bundle struct {
	Format        int              `json:"bundle"`
	MadeAt        time.Time        `json:"made_at"`
	Program       build.Info       `json:"program"`
	Store         bundleStore      `json:"store"`
	Configuration bundleConfig     `json:"configuration"`
	Record        recordJSON       `json:"record"`
	ScopeHash     string           `json:"scope_hash"`
	Stored        *bundleStored    `json:"stored,omitempty"`
	Audit         []operator.Entry `json:"audit"`
}

type bundleStore struct {
	Kind   string `json:"kind"`
	Schema int    `json:"schema_version"`
	Newest int    `json:"newest_schema_version"`
	Sealed bool   `json:"encrypted"`
}

// bundleConfig has hashes by which two configurations can be compared.
type bundleConfig struct {
	// Identity is of the settings that the keys of the store are stored under.
	Identity string `json:"identity_sha256,omitempty"`
	File     string `json:"file_sha256,omitempty"`
}

// bundleStored are the bytes that a record holds besides its answer.
type bundleStored struct {
	Request    []byte `json:"request_base64,omitempty"`
	Checkpoint []byte `json:"checkpoint_base64,omitempty"`
}

func newBundle(ctx context.Context, s *session, ref retrysafe.Ref, bodies bool) (*bundle, error) {
	r, err := s.Show(ctx, ref)
	if bodies && err == nil {
		r, err = s.Contents(ctx, ref, "retrysafe keys export --with-bodies")
	}
	if err != nil && (!errors.Is(err, retrysafe.ErrUnreadable) || r.Revision == 0) {
		return nil, cannotLoad(s, ref, err)
	}
	if err != nil {
		r.Version = 0 // shown as unreadable: parts of it may be wrong
	}
	facts, err := s.Facts(ctx)
	if err != nil {
		return nil, s.StoreError(err)
	}
	audit, err := s.Audit(ctx, operator.AuditFilter{Ref: ref, Limit: 1000})
	if err != nil {
		return nil, s.StoreError(err)
	}
	b := &bundle{
		Format: 1, MadeAt: time.Now().UTC(), Program: build.Current(), Record: newRecordJSON(&r, !bodies, bodies), ScopeHash: retrysafe.HashKey(ref.Scope),
		Store: bundleStore{facts.Store.Kind, facts.Store.Schema, facts.Store.Newest, facts.Store.Encrypted}, Audit: audit,
	}
	b.Configuration.Identity = facts.Identity
	if bodies {
		b.Stored = &bundleStored{r.Request, r.Checkpoint.Data}
		return b, nil
	}
	b.Record.Scope, b.Record.ScopeBytes = "", nil
	if b.Record.Answer != nil {
		b.Record.Answer.HeaderNames, b.Record.Answer.Headers = slices.Sorted(maps.Keys(b.Record.Answer.Headers)), nil
	}
	for i := range b.Audit {
		b.Audit[i].Ref = retrysafe.Ref{}
	}
	return b, nil
}

func sum(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}
