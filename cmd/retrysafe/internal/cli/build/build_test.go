package build_test

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
)

func TestBuildInfo(t *testing.T) {
	t.Parallel()
	b := build.Of(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-03-01T03:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}})
	if got := b.String(); !strings.HasPrefix(got, "retrysafe v1.2.3 (0123456789ab of 2026-03-01T03:00:00Z, modified), go") {
		t.Error(got)
	}
	if got := build.Of(nil).String(); !strings.HasPrefix(got, "retrysafe (devel), go") {
		t.Error(got)
	}
}
