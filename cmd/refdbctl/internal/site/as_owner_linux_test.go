package site

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asOwner makes the test binary run as another user for a moment: the tests of a process share its
// user.
const asOwner = "REFDBCTL_TEST_AS_OWNER"

func TestMain(m *testing.M) {
	if path := os.Getenv(asOwner); path != "" {
		err := AsOwner(path, func() error {
			who, err := exec.Command("id", "-u").Output() // what is started is that user for good
			_, failed := os.ReadFile("/etc/shadow")
			fmt.Printf("%d %s %v\n", os.Geteuid(), strings.TrimSpace(string(who)), os.IsPermission(failed))
			return err
		})
		fmt.Println(os.Getuid(), os.Geteuid(), os.Getegid(), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRootIsTheOwnerOnlyForAMoment(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user: whether a file is read as its owner is not looked at")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asOwner+"="+dir)
	out, err := cmd.CombinedOutput()
	if want := "4321 4321 true\n0 0 0 <nil>\n"; err != nil || string(out) != want {
		t.Errorf("%s, %v, want %s", out, err, want)
	}
}
