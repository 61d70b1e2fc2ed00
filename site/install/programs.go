package install

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"time"
)

// Programs caches what is in the files of hooks. The hooks of all repositories are links to a few
// files, each of some megabytes. A nil Programs caches nothing.
type Programs struct {
	mu    sync.Mutex
	known map[fileVersion]hookProgramState
}

// A fileVersion identifies a file and its content.
type fileVersion struct {
	device, inode uint64
	size          int64
	modified      time.Time
}

type hookProgramState struct {
	ours bool // it is refdb-hook, of any version
	same bool // it equals the program that was asked for
}

// NewPrograms returns an empty cache.
func NewPrograms() *Programs {
	return &Programs{known: map[fileVersion]hookProgramState{}}
}

// look compares the file at path with program. A nil program equals any file.
func (h *Programs) look(path string, program []byte) hookProgramState {
	version, ok := versionOf(path)
	if h == nil || !ok {
		return readHookState(path, program)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state, known := h.known[version]
	if !known {
		state = readHookState(path, program)
		if now, ok := versionOf(path); ok && now == version {
			h.known[version] = state
		}
	}
	return state
}

func readHookState(path string, program []byte) hookProgramState {
	state := hookProgramState{ours: isOurs(path), same: true}
	if state.ours && program != nil {
		have, err := os.ReadFile(path)
		state.same = err == nil && bytes.Equal(have, program)
	}
	return state
}

func versionOf(path string) (fileVersion, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return fileVersion{}, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileVersion{}, false
	}
	return fileVersion{uint64(s.Dev), uint64(s.Ino), info.Size(), info.ModTime()}, true
}
