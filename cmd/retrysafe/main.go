// Retrysafe makes any POST retry-safe: a gateway before services in any language, a
// demo, and the tools of their operators. retrysafe --help lists the commands.
package main

import (
	"os"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli"
)

func main() { os.Exit(cli.Main()) }
