package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/adminclient"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// TokenVariable has the token for the admin API.
const TokenVariable = "RETRYSAFE_ADMIN_TOKEN" //nolint:gosec // the name of a variable, not a token

// AdminHelp is for the help texts of commands that can work through a gateway.
const AdminHelp = `With --admin URL they work through the admin API of a gateway instead, and need no access
to the database: https://HOST:PORT, http://HOST:PORT or unix:/PATH. The token is in
$` + TokenVariable + ` or in the file of --admin-token-file; its name is the author of
every action.`

// AddAdmin adds the flags that name the admin API of a gateway instead of a store.
func (f *Flags) AddAdmin(to *pflag.FlagSet) {
	to.StringVar(&f.AdminURL, "admin", "", "`URL` of a gateway's admin API, instead of a store")
	to.StringVar(&f.AdminTokenFile, "admin-token-file", "", "`FILE` with the token for it (default $"+TokenVariable+")")
}

// RefuseAdmin lets a command that needs the database itself say so.
func RefuseAdmin(cmd *cobra.Command, why string) {
	var url string
	flags := cmd.Flags()
	flags.StringVar(&url, "admin", "", "")
	flags.Lookup("admin").Hidden = true
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("admin") {
			return exit.Usagef("%s; --admin does not reach it", why).Hintf("run it where the database can be reached, with --store or --config")
		}
		return run(cmd, args)
	}
}

// An Admin is the admin API of a gateway, and what an operator may do there. It offers
// what a [Session] does. Close it when done.
type Admin struct {
	*adminclient.Client
	url, repeat string
}

// OpenAdmin connects to the admin API that the flags name.
func (f *Flags) OpenAdmin(ctx context.Context, env *command.Env) (*Admin, error) {
	for name, value := range map[string]string{"--store": f.URL, "--config": f.Config, "--keys-file": f.KeysFile} {
		if value != "" {
			return nil, exit.Usagef("--admin and %s exclude each other: the gateway knows its store and its keys", name)
		}
	}
	token, err := f.adminToken(env)
	if err != nil {
		return nil, err
	}
	c, err := adminclient.New(f.AdminURL, token)
	if err != nil {
		return nil, exit.Usagef("--admin: %v", err)
	}
	a := &Admin{Client: c, url: f.AdminURL, repeat: " --admin " + terminal.ShellWord(f.AdminURL)}
	if f.AdminTokenFile != "" {
		a.repeat += " --admin-token-file " + terminal.ShellWord(f.AdminTokenFile)
	}
	if c.InClearText() {
		fmt.Fprintf(env.Err, "retrysafe: warning: the token crosses the network to %s in clear text; use https\n", a)
	}
	start, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := c.Open(start); err != nil {
		return nil, a.StoreError(err)
	}
	return a, nil
}

func (f *Flags) adminToken(env *command.Env) (string, error) {
	token := env.Getenv(TokenVariable)
	if f.AdminTokenFile != "" {
		text, err := os.ReadFile(f.AdminTokenFile)
		if err != nil {
			return "", exit.Usagef("--admin-token-file: %v", err)
		}
		token = strings.TrimSpace(string(text))
	}
	switch {
	case token == "":
		return "", exit.Usagef("the token for --admin is missing").Hintf("put it into $%s, or name its file with --admin-token-file", TokenVariable)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", exit.Usagef("the token for --admin contains characters that no token has")
	}
	return token, nil
}

// Again returns the flags, each after a space, with which another command finds the same
// gateway.
func (a *Admin) Again() string { return a.repeat }

// String returns the address.
func (a *Admin) String() string { return printable.Text(a.url) }

// StoreError returns an error of the gateway as one of the command. Nil stays nil, and an
// [*exit.Error] stays what it is.
func (a *Admin) StoreError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, adminclient.ErrAccess):
		return exit.Errorf(exit.No, "the gateway %s refuses: %v", a, err).Hintf("check the token and its role in admin.tokens of the gateway's configuration")
	case errors.Is(err, retrysafe.ErrUnavailable):
		return exit.Errorf(exit.Store, "the store of the gateway %s does not answer: %v", a, err)
	}
	return exit.Errorf(exit.Store, "the gateway %s: %v", a, err)
}

// denied returns an error that says that the token may not do this, and other errors as
// they are: nothing was done then, and a command need not find out.
func (a *Admin) denied(err error) error {
	if errors.Is(err, adminclient.ErrAccess) {
		return a.StoreError(err)
	}
	return err
}

// Act applies a verb to one record.
func (a *Admin) Act(ctx context.Context, verb string, act operator.Action, answer *retrysafe.Result) (operator.Entry, error) {
	e, err := a.Client.Act(ctx, verb, act, answer)
	return e, a.denied(err)
}

// ActOnMessage applies a verb to one message.
func (a *Admin) ActOnMessage(ctx context.Context, verb string, act operator.DeadLetterAction) (operator.Entry, error) {
	e, err := a.Client.ActOnMessage(ctx, verb, act)
	return e, a.denied(err)
}

// Apply changes the records of a selection.
func (a *Admin) Apply(ctx context.Context, b operator.Batch, of *adminwire.Counted) (operator.Entry, error) {
	e, err := a.Client.Apply(ctx, b, of)
	return e, a.denied(err)
}

// Quarantine sets aside what is not final.
func (a *Admin) Quarantine(ctx context.Context, s operator.Suspects) (operator.Entry, error) {
	e, err := a.Client.Quarantine(ctx, s)
	return e, a.denied(err)
}

// Close ends the session.
func (a *Admin) Close(context.Context) { a.CloseConnections() }
