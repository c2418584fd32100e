// Package build says what this program was built from. All of it was put into the
// binary by the go command, so that two builds of one commit say the same.
package build

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Info is what a program was built from.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Current returns what the running program was built from.
func Current() Info {
	info, _ := debug.ReadBuildInfo()
	return Of(info)
}

// Of returns what a program with this information was built from. Nil stands for a
// program without any.
func Of(info *debug.BuildInfo) Info {
	b := Info{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

// String returns all of it in one line.
func (b Info) String() string {
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
