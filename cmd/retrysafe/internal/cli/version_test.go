package cli_test

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	s := clitest.NewShell(t, "")
	s.Run("version").Exits(0).Says("retrysafe ", runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	var v struct{ Version, Go, Platform string }
	clitest.Must(t, json.Unmarshal([]byte(s.Run("version --format json").Exits(0).Out), &v))
	if v.Version == "" || v.Go != runtime.Version() || v.Platform == "" {
		t.Errorf("it is %+v", v)
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	t.Parallel()
	here := clitest.NewShell(t, "")
	if flag, command := here.Run("--version").Exits(0), here.Run("version").Exits(0); flag.Out != command.Out || flag.Out == "" {
		t.Errorf("--version says %q, and version %q", flag.Out, command.Out)
	}
}
