package testserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const emulatorProgram = "emulator_main"

// An Emulator is a Spanner emulator of our own. It keeps all data in memory.
type Emulator struct {
	*Process
	Address string // host and port
}

// EmulatorOptions are what emulators differ in.
type EmulatorOptions struct {
	Port string // on the loopback interface. "": one that the emulator picks
	Log  string // a file to append to, or ""
}

// StartEmulator starts one and waits until it listens.
func StartEmulator(ctx context.Context, o EmulatorOptions) (*Emulator, error) {
	path, err := emulatorPath()
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory("")
	if err != nil {
		return nil, err
	}
	if o.Port == "" {
		o.Port = "0"
	}
	p, err := command{argv: []string{path, "--host_port", "127.0.0.1:" + o.Port}, dir: dir, signal: "KILL", log: o.Log}.start()
	if err != nil {
		return nil, err
	}
	e := &Emulator{Process: p}
	line := regexp.MustCompile(`Server address: (127\.0\.0\.1:\d+)\n`)
	err = p.until(ctx, func(context.Context) error {
		found := line.FindStringSubmatch(p.Output() + "\n")
		if found == nil {
			return errors.New("it doesn't say its address")
		}
		e.Address = found[1]
		return nil
	})
	if err != nil {
		_ = p.Stop()
		return nil, err
	}
	return e, nil
}

// Program returns the path of the emulator's program.
func (e *Emulator) Program() string { return e.name }

// Dir returns the emulator's directory.
func (e *Emulator) Dir() string { return e.dir.path }

// emulatorPath looks where Google's package and installers put the emulator.
func emulatorPath() (string, error) {
	if path, err := exec.LookPath(emulatorProgram); err == nil {
		return path, nil
	}
	home, _ := os.UserHomeDir()
	for _, root := range []string{
		os.Getenv("CLOUDSDK_ROOT_DIR"),
		"/usr/lib/google-cloud-sdk",
		"/usr/share/google-cloud-sdk",
		"/snap/google-cloud-cli/current",
		"/snap/google-cloud-sdk/current",
		"/opt/google-cloud-sdk",
		"/opt/homebrew/share/google-cloud-sdk",
		filepath.Join(home, "google-cloud-sdk"),
	} {
		if path := emulatorIn(root); root != "" && executable(path) {
			return path, nil
		}
	}
	if out, err := exec.Command("gcloud", "info", "--format=value(installation.sdk_root)").Output(); err == nil {
		if path := emulatorIn(strings.TrimSpace(string(out))); executable(path) {
			return path, nil
		}
	}
	return "", NotInstalledError{"Spanner emulator"}
}

func emulatorIn(root string) string {
	return filepath.Join(root, "bin", "cloud_spanner_emulator", emulatorProgram)
}
