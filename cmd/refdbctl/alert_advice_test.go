package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	sitecheck "github.com/globalrefdb/globalrefdb/site/check"
)

// What an alert, and the table of alerts, tell to type.
var (
	alertRow = regexp.MustCompile("(?m)^\\| `(Refdb[A-Za-z]+)` \\| [^|]* \\| ([^|]*) \\|$")
	typed    = regexp.MustCompile("`((?:sudo )?(?:refdbctl|git|systemctl|site|gerrit|locks|project) [^`]*)`")
	// Commands that the page names without telling to type them: what they need is in what `site status` and `site check` say.
	named       = map[string]bool{"refdbctl site enable": true, "refdbctl site sync": true, "refdbctl locks resolve": true}
	placeholder = map[string]string{"PROJECT": "team/app", "REF": mainRef}
)

// alertAdvice returns the commands that the documentation has for each alert.
func alertAdvice(tb testing.TB) map[string][]string {
	tb.Helper()
	all := map[string][]string{}
	note := func(alert, text string) {
		if _, ok := all[alert]; !ok {
			all[alert] = nil
		}
		for _, m := range typed.FindAllStringSubmatch(text, -1) {
			all[alert] = append(all[alert], strings.TrimPrefix(m[1], "sudo "))
		}
	}
	page, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		tb.Fatal(err)
	}
	for _, row := range alertRow.FindAllStringSubmatch(string(page), -1) {
		note(row[1], row[2])
	}
	rules, err := os.ReadFile("../../docs/monitoring/alerts.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(rules, &file); err != nil {
		tb.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if _, ok := all[r.Alert]; !ok {
				tb.Errorf("the page has no advice for %s", r.Alert)
			}
			note(r.Alert, r.Annotations["summary"])
		}
	}
	if len(all) < 30 {
		tb.Fatalf("only %d alerts", len(all))
	}
	return all
}

// An operator types the commands of an alert's advice: at a healthy site each command runs, and
// finds nothing.
func TestTheCommandsOfAlertsRun(t *testing.T) {
	t.Parallel()
	a := newAdvised(t, "[site]\nstore = all")
	ran := map[string]bool{}
	for alert, commands := range alertAdvice(t) {
		for _, command := range commands {
			words := strings.Fields(command)
			if words[0] == "site" || words[0] == "gerrit" || words[0] == "locks" || words[0] == "project" {
				words = append([]string{"refdbctl"}, words...) // a short form, beside one that is complete
			}
			for i, word := range words {
				if with, ok := placeholder[word]; ok {
					words[i] = with
				}
			}
			command = strings.Join(words, " ")
			if ran[command] {
				continue
			}
			ran[command] = true
			switch {
			case words[0] != "refdbctl":
				if !strings.HasPrefix(command, "systemctl status refdb-s") { // of the site, and the server
					t.Errorf("%s: no test runs %q", alert, command)
				}
			case command == "refdbctl site http", command == "refdbctl site serve":
				t.Errorf("%s: %q runs until it is stopped: it is no advice", alert, command)
			case words[1] == "gerrit": // its tests carry these out
			case named[command]:
			default:
				if words[1] == "site" {
					if words[2] != "store" {
						words = append(words, "--config", a.config)
					}
					if words[2] == "check" || words[2] == "clone" {
						words = append(words, "--hook", a.hook)
					}
				}
				if r := a.run(t, words[1:]...); r.code != exit.OK {
					t.Errorf("%s: %s: %d: %s%s", alert, command, r.code, r.err, r.out)
				}
			}
		}
	}
	if len(ran) < 6 {
		t.Errorf("only %v", ran)
	}
}

// A decision that a site has not heard of, because its daemon does not run.
func TestTheAdviceOnADecisionThatIsNotCarriedOutWorks(t *testing.T) {
	t.Parallel()
	a := newAdvised(t, "")
	a.prepare(t, "us", "team/app", refdb.Update{Ref: "refs/heads/x", New: refdb.Value(a.repo.commit)})
	a.stop()
	for _, table := range []string{"intents", "locks"} { // as if this site had announced it
		a.Exec(t, "UPDATE "+table+" SET owner = replace(owner, 'us/', 'eu/') WHERE ref = 'refs/heads/x'")
	}
	a.run(t, "locks", "resolve", "team/app", "refs/heads/x", "--take-new", "--reason", "x", "--yes").is(t, exit.OK, "")
	a.Exec(t, "UPDATE intents SET time = time - ?, decided_at = decided_at - ?", time.Hour.Microseconds(), time.Hour.Microseconds())
	r := a.site(t, "check", "--hook", a.hook, "-o", "json")
	var detail string
	for _, f := range decode[struct{ Findings []sitecheck.Finding }](t, r.out).Findings {
		if f.Code == sitecheck.IntentDecided {
			detail = f.Detail
		}
	}
	if detail == "" {
		t.Fatalf("it is not found: %s%s", r.err, r.out)
	}
	a.carriesOut(detail, 0, 1)
	a.stop = a.serve(t)
	eventually(t, "check is content", func() bool { return a.site(t, "check", "--hook", a.hook).code == exit.OK })
	if _, err := os.Stat(filepath.Join(a.repo.path, "refs/heads/x")); err != nil {
		t.Error(err)
	}
}
