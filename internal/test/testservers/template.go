package testservers

import (
	"context"
	"path/filepath"
	"sync"
)

// template is a data directory that initdb has made: once in each process,
// because a copy of it costs a fraction.
var template struct {
	mu   sync.Mutex
	path string
}

func templateData(ctx context.Context, bin string) (string, error) {
	template.mu.Lock()
	defer template.mu.Unlock()
	if template.path != "" {
		return template.path, nil
	}
	dir, err := newDir(memory(), "template")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	// Without sync: a template that a crash of the machine has damaged is made anew.
	err = run(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", superuser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return "", err
	}
	template.path = data
	return data, nil
}

// forgetTemplate is for when the home is removed.
func forgetTemplate() {
	template.mu.Lock()
	defer template.mu.Unlock()
	template.path = ""
}
