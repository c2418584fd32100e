package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what this program was built from. All of it is in the binary itself, put
// there by the go command, so that two builds of one commit say the same.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// thisBuild is what the running program was built from.
func thisBuild() build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(info)
}

func (b build) String() string {
	text := "retrysafe " + b.Version
	if b.Commit != "" {
		text += " (" + b.Commit[:min(12, len(b.Commit))]
		if b.Time != "" {
			text += " of " + b.Time
		}
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + ", " + b.Go + ", " + b.Platform
}

func (p *program) version() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Long:  `Says which version this is, of which commit, built by which Go and for which platform.`,
		Example: `  retrysafe version
  retrysafe version --format json`,
		Args: exactly(),
	}
	format := formats(cmd, "text", "json")
	cmd.RunE = runs(func(*cobra.Command, []string) error {
		b := thisBuild()
		if format.value == "json" {
			return writeJSON(p.stdout, b)
		}
		_, err := fmt.Fprintln(p.stdout, b)
		return err
	})
	return cmd
}
