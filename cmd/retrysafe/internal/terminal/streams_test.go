package terminal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func TestSomebodySitsAtATerminal(t *testing.T) {
	t.Parallel()
	device, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("a machine without terminals, such as a bare chroot: %v", err)
	}
	defer device.Close()
	if !terminal.IsTerminal(device) {
		t.Error("a terminal is taken for none")
	}
}

func TestNobodySitsAtAFile(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, stream := range []any{null, file, strings.NewReader("")} {
		if terminal.IsTerminal(stream) {
			t.Errorf("%v is taken for a terminal", stream)
		}
	}
}
