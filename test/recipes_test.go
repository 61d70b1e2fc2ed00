package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// The commands of docs/RECIPES.md run as they are written, and its Go code is that of the examples, which
// have tests. The test replaces the directory /tmp, and `go run` by a program that is built once.
func TestTheRecipesRunAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, examples, tmp := programs(t), t.TempDir(), t.TempDir()
	if err := testprogram.Build(examples, "examples/archive", "examples/work"); err != nil {
		t.Fatal(err)
	}
	var script []string
	for _, m := range regexp.MustCompile(`(?m)^    \$ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		script = append(script, strings.NewReplacer("go run ./examples/", examples+"/", "/tmp/", tmp+"/").Replace(m[1]))
	}
	if len(script) < 15 {
		t.Fatalf("only %d commands were found", len(script))
	}
	out := runIn(t, "..", []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "bash", "-euc", strings.Join(script, "\n"))
	for _, want := range []string{
		"this machine leads", "a backup writes, beside others", "the cleaner is alone", `write with token \d+`,
		"done +refs/work/a", "done +refs/work/b", "done +refs/work/c",
	} {
		if !regexp.MustCompile("(?m)^" + want + "$").MatchString(out) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	blocks, err := os.ReadDir(filepath.Join(tmp, "blocks"))
	if err != nil || len(blocks) != 3 {
		t.Errorf("the archive has %v, %v; want tuesday's two files and their list", blocks, err)
	}

	files, err := filepath.Glob("../examples/recipes/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := ""
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code += string(content)
	}
	shown := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(shown) < 3 {
		t.Fatalf("only %d pieces of code were found", len(shown))
	}
	for _, m := range shown {
		if !strings.Contains(code, "\n"+m[1]) {
			t.Errorf("no example has\n%s", m[1])
		}
	}
}
