package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// The commands of docs/SERVICE.md run as they are written. The test replaces the directory /tmp and the port.
func TestTheServicesPageRunsAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("left out: the commands of docs/SERVICE.md, which use %s, and it is not installed", program)
		}
	}
	text, err := os.ReadFile("../docs/SERVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, servers, tmp := programs(t), t.TempDir(), t.TempDir()
	if err := testprogram.Build(servers, "cmd/refdb-server"); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	// If a command fails, the server ends with the script, whose output it has.
	script := []string{`trap '{ kill %1 && wait %1; cat ` + tmp + `/refdb-server.log; } 2>&1' EXIT`}
	for _, m := range regexp.MustCompile(`(?m)^    \$ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		script = append(script, strings.NewReplacer("/tmp/", tmp+"/", "127.0.0.1:9480", address).Replace(m[1]))
	}
	if len(script) < 25 {
		t.Fatalf("only %d commands were found", len(script))
	}
	out := runIn(t, "..", []string{"PATH=" + servers + ":" + bin + ":" + os.Getenv("PATH")}, "bash", "-euo", "pipefail", "-c", strings.Join(script, "\n"))
	rest := strings.ReplaceAll(out, " ", "")
	for _, want := range []string{
		"ok", `"value":"1111111111`, `"refs":[{"name":"refs/deployed/production"`, `"upToDate":true`,
		"permission_denied", "norighttolockrefs/deployed/production", "ci-deploy", `"extended":{}`, `"updated":{}`,
		`"value":"2222222222`, `"released":{}`, `"updated":{}`, `"value":"2222222222`, `"extended":{}`,
		`["refs/deployed/production","1111111111`, "event:heartbeat", "deploying", "{}", "stopping",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("the output lacks %q in its place:\n%s", want, out)
		}
		rest = after
	}
	secret, err := os.ReadFile(filepath.Join(tmp, "ci-deploy.token"))
	if err != nil || strings.Contains(out, strings.TrimSpace(string(secret))) {
		t.Errorf("the output has the token, %v", err)
	}
}
