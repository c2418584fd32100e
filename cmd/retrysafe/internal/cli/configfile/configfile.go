// Package configfile loads the configuration of a gateway for commands: its problems
// become an error of the command line, one line for each.
package configfile

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// Load returns the configuration that a file and flags make. Flags override the file.
// Without a path the flags are the whole configuration.
func Load(env *command.Env, path string, flags ...config.Flag) (c *config.Config, err error) {
	if path == "" {
		c, err = config.Parse("", nil, env.LookupEnv, flags...)
	} else {
		c, err = config.Load(path, env.LookupEnv, flags...)
	}
	if err != nil {
		return nil, problems(path, err)
	}
	return c, nil
}

// LoadStore returns the configuration in a file, of which only the store and its keys file
// are needed: see [config.LoadStore].
func LoadStore(env *command.Env, path string) (*config.Config, error) {
	c, err := config.LoadStore(path, env.LookupEnv)
	if err != nil {
		return nil, problems(path, err)
	}
	return c, nil
}

// problems returns everything that is wrong with a configuration.
func problems(path string, err error) *exit.Error {
	if _, ok := errors.AsType[*config.FieldError](err); !ok {
		if errors.Is(err, fs.ErrNotExist) { // not a file that a field names
			return exit.Usagef("there is no configuration file %s", path).Hintf("its name is relative to the working directory; docs/configuration.md has a file to begin with")
		}
		return exit.Usagef("%v", err)
	}
	e := exit.Problems(err, strings.Split(err.Error(), "\n"))
	if path == "" {
		return e.Hintf("see retrysafe gateway --help")
	}
	return e
}
