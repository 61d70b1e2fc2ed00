package testserver_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

// podman stands for a container engine: it runs a container as a process, which "rm --force" ends. The process notes
// what it was started with.
const podman = `#!/bin/sh
dir=${0%%/*}
case $1 in
info) exit %d ;;
rm) kill -KILL "$(cat "$dir/$3")" 2>/dev/null ;;
run)
	name=$4
	echo "$@" >"$dir/args"
	sleep 1000 & echo $! >"$dir/$name"
	wait $!
	rm "$dir/$name" ;;
esac
`

// engine puts the stand-in into PATH, as the only engine. status is that of "podman info".
func engine(t *testing.T, status int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"podman": fmt.Sprintf(podman, status), "docker": "#!/bin/sh\nexit 1\n"} {
		if err := testprogram.Write(filepath.Join(dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func TestAContainerRunsUntilItIsStopped(t *testing.T) {
	dir := engine(t, 0)
	running := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "refdb-test-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	c, err := testserver.StartContainer(t.Context(), testserver.ContainerOptions{
		Image: "server:1.2", Port: 5432, Env: []string{"A=b"}, Args: []string{"-c", "fsync=off"},
	}, func(string) error {
		if _, err := os.Stat(filepath.Join(dir, "args")); err != nil || len(running()) != 1 {
			return errors.New("it does not run yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	if host, _, err := net.SplitHostPort(c.Address); err != nil || host != "127.0.0.1" {
		t.Errorf("its address is %s", c.Address)
	}
	if want := fmt.Sprintf(" --publish %s:5432 --env A=b server:1.2 -c fsync=off\n", c.Address); !strings.HasSuffix(string(args), want) {
		t.Errorf("it was started with %s, not %s", args, want)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if left := running(); len(left) > 0 {
		t.Errorf("%s is left", left)
	}
}

func TestAContainerThatEndsSaysWhy(t *testing.T) {
	dir := engine(t, 0)
	if err := testprogram.Write(filepath.Join(dir, "podman"), []byte("#!/bin/sh\n[ $1 = info ] || { echo no such image; exit 125; }\n")); err != nil {
		t.Fatal(err)
	}
	_, err := testserver.StartContainer(t.Context(), testserver.ContainerOptions{Image: "server:1.2"}, func(string) error { return errors.New("nobody listens") })
	if err == nil || !strings.Contains(err.Error(), "container server:1.2 ended at once; it says: no such image") {
		t.Error(err)
	}
}

func TestWithoutARunningEngineThereIsNoContainer(t *testing.T) {
	engine(t, 1)
	_, err := testserver.StartContainer(t.Context(), testserver.ContainerOptions{Image: "server:1.2"}, func(string) error { return nil })
	if !errors.As(err, new(testserver.NotInstalledError)) {
		t.Error(err)
	}
}
