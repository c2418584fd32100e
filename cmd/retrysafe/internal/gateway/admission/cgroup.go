package admission

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// DefaultMemory is the memory for bodies and answers where the process has no limit.
const DefaultMemory = 256 << 20

// memoryShare is the part of the container's limit that bodies and answers get by
// default. The heap may grow to twice what is in use before it is collected, and caches,
// connections and the runtime need the rest.
const memoryShare = 4

// MemoryFor returns the budget in bytes for a setting, of which 0 is the default: a
// quarter of the container's memory limit, or [DefaultMemory] without one.
func MemoryFor(setting int64) int64 {
	if setting > 0 {
		return setting
	}
	if limit := ContainerMemory(); limit > 0 {
		return limit / memoryShare
	}
	return DefaultMemory
}

// ContainerMemory returns the memory limit of the control group that the process is in,
// of version 2 or 1, and 0 if there is none.
func ContainerMemory() int64 { return containerMemory(os.DirFS("/")) }

func containerMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			limit = min(limit, lowest(root, "sys/fs/cgroup", group, "memory.max"))
		case strings.Contains(","+controllers+",", ",memory,"):
			limit = min(limit, lowest(root, "sys/fs/cgroup/memory", group, "memory.limit_in_bytes"))
		}
	}
	if limit >= unlimited {
		return 0
	}
	return limit
}

// unlimited is at most what version 1 reports for a group without a limit: the largest
// number of whole pages.
const unlimited = math.MaxInt64 &^ (1<<20 - 1)

// lowest returns the lowest limit of a group and those that it is in. Inside a container
// the group's own folder may not be there, but that of the mount is.
func lowest(root fs.FS, mount, group, file string) int64 {
	limit := int64(math.MaxInt64)
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		if text, err := fs.ReadFile(root, path.Join(mount, group, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 { // or "max"
				limit = min(limit, n)
			}
		}
		if group == "/" {
			return limit
		}
	}
}
