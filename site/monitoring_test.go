package site_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.yaml.in/yaml/v2"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/metrics"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/smarthttp"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

const monitoring = "../docs/monitoring"

// The rows about what follows other sites, about packs and about reads over HTTP have all that is exported about these.
func TestTheDashboardHasAllThatIsExportedAboutSomeThings(t *testing.T) {
	t.Parallel()
	shown := strings.Join(queries(t), "\n")
	about := regexp.MustCompile("^refdb_(http|site_packs|site_follow|site_followed|site_not_following|site_repositories_(not_)?following)_?")
	for _, s := range samples(exported(t)) {
		if about.MatchString(s.name) && !regexp.MustCompile(s.name+`\b`).MatchString(shown) {
			t.Errorf("no panel has %s", s.name)
		}
	}
}

var scrapeExample = regexp.MustCompile("(?s)```yaml\n(# prometheus.yml\n.*?)```")

// The alerts are about the job that the page tells to define.
func TestTheExampleOfAScrapeHasTheJobOfTheAlerts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	found := scrapeExample.FindSubmatch(page)
	if found == nil {
		t.Fatal("there is no example")
	}
	var example struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string                       `yaml:"job_name"`
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
			Scheme        string                       `yaml:"scheme"`
			Authorization map[string]string            `yaml:"authorization"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.UnmarshalStrict(found[1], &example); err != nil {
		t.Fatal(err)
	}
	jobs := map[string]bool{}
	for _, c := range example.ScrapeConfigs {
		jobs[c.JobName] = len(c.StaticConfigs) == 1 && len(c.StaticConfigs[0].Targets) > 0
	}
	if !slices.Equal(example.RuleFiles, []string{"alerts.yaml"}) || len(jobs) != 3 || !jobs["refdb"] || !jobs["refdb-http"] || !jobs["refdb-server"] {
		t.Errorf("the example has %+v", example)
	}
	for _, a := range alerts(t) {
		for _, m := range regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(a.Expr, -1) {
			if !jobs[m[1]] {
				t.Errorf("%s is about the job %s, which the example does not have", a.Alert, m[1])
			}
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not there: make deps installs it; the rest of this test asks it")
	}
	dir := t.TempDir()
	rules, err := os.ReadFile(filepath.Join(monitoring, "alerts.yaml"))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "prometheus.yml"), found[1], 0o644), os.WriteFile(filepath.Join(dir, "alerts.yaml"), rules, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	sitetest.Run(t, dir, "promtool", "check", "config", "--syntax-only", "prometheus.yml") // the token is in a file that is not there
}

// An alert is one of the documentation's rules for Prometheus.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(tb testing.TB) (all []alert) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, "alerts.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		tb.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		tb.Fatalf("only %d alerts", len(all))
	}
	return all
}

// queries are the expressions of the dashboard.
func queries(tb testing.TB) (all []string) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct{ Definition string }
		}
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		tb.Fatal(err)
	}
	for _, v := range board.Templating.List {
		all = append(all, v.Definition)
	}
	for _, p := range board.Panels {
		if (p.Type == "row") != (len(p.Targets) == 0) {
			tb.Errorf("the panel %q has %d queries", p.Title, len(p.Targets))
		}
		for _, t := range p.Targets {
			all = append(all, t.Expr)
		}
	}
	if len(all) < 20 {
		tb.Fatalf("only %d queries", len(all))
	}
	return all
}

// A sample is one line of a scrape.
type sample struct {
	name   string
	labels map[string]string
}

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)
	labelOf    = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	selectorOf = regexp.MustCompile(`(refdb_[a-z_]+)(?:\{([^}]*)\})?`)
	matcherOf  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
)

func samples(text string) (all []sample) {
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		s := sample{line[1], map[string]string{}}
		for _, l := range labelOf.FindAllStringSubmatch(line[2], -1) {
			s.labels[l[1]] = l[2]
		}
		all = append(all, s)
	}
	return all
}

// selects reports whether a metric's matchers select a sample. What Prometheus itself adds to it does not count.
func selects(name, matchers string, s sample) bool {
	if s.name != name {
		return false
	}
	for _, m := range matcherOf.FindAllStringSubmatch(matchers, -1) {
		if m[1] == "instance" || m[1] == "job" {
			continue
		}
		value, ok := s.labels[m[1]]
		equal := value == m[3]
		if strings.Contains(m[2], "~") {
			equal = regexp.MustCompile("^(?:" + m[3] + ")$").MatchString(value)
		}
		if !ok || equal == strings.HasPrefix(m[2], "!") {
			return false
		}
	}
	return true
}

// alternatives are selectors for each value of the patterns in a metric's matchers.
func alternatives(name, matchers string) (all [][]string) {
	for _, m := range matcherOf.FindAllStringSubmatch(matchers, -1) {
		for value := range strings.SplitSeq(m[3], "|") {
			if m[2] == "=~" && m[1] != "instance" {
				one := m[1] + "=\"" + value + "\""
				all = append(all, []string{name + "{" + one + "}", name, one})
			}
		}
	}
	return all
}

// exported is what a daemon exports that has served pushes, and a program that has locked refs.
func exported(t *testing.T) string {
	t.Helper()
	setting, at := exporting(t)
	shared := local.Postgres(t)
	g := newGuard(t, shared, "eu-1", setting, "[pushMirror \"backup\"]\n\turl = /nowhere/{project}.git")
	g.git("update-ref", "refs/heads/x", g.commit[0])
	client := g.client()
	if said, ok := client.push("c1:refs/heads/x"); !ok {
		t.Fatal(said)
	}
	sitetest.Eventually(t, "a heartbeat, a survey, a comparison, and a mirror", func() bool {
		_, text := get(t, at, "/metrics")
		return strings.Contains(text, `refdb_operation_duration_seconds_count{op="beat",outcome="ok"}`) && strings.Contains(text, "refdb_site_packs_unused_bytes ") && strings.Contains(text, "refdb_site_unreachable_sites ") &&
			strings.Contains(text, `refdb_site_push_mirror_behind_seconds{mirror="backup"}`)
	})

	library := metrics.New()
	db, err := refdb.New(shared.Open(t), refdb.Options{Site: "program", Observe: library.Observe})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	library.Watch(db)
	lock, err := db.Lock(t.Context(), "p", "refs/heads/x")
	if err == nil {
		err = lock.Release(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(library)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	_, text := get(t, at, "/metrics")
	return text + w.Body.String() + exportedOverHTTP(t) + exportedByServer(t) + exportedByGerrit(t)
}

var gerritMetric = regexp.MustCompile(`(?:newCallbackMetric\(\s*)"(refdb/[a-z_/]+)"`)

// exportedByGerrit is what the guard in a Gerrit puts into Gerrit's registry, as metrics-reporter-prometheus names it.
func exportedByGerrit(t *testing.T) (text string) {
	t.Helper()
	for _, file := range []string{"GuardMetrics.java", "moves/MoveMetrics.java"} {
		source, err := os.ReadFile("../gerrit/src/main/java/com/github/globalrefdb/gerrit/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range gerritMetric.FindAllStringSubmatch(string(source), -1) {
			text += strings.ReplaceAll(m[1], "/", "_") + " 0\n"
		}
	}
	return text
}

// exportedOverHTTP is what the front for readers exports.
func exportedOverHTTP(t *testing.T) string {
	t.Helper()
	server, err := smarthttp.New(t.Context(), smarthttp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(server.Collectors()...)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// The cases of an alert are named after it.
func TestEachAlertHasACaseInWhichItFiresAndOneInWhichItDoesNot(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(monitoring, "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Name string
			Look []struct {
				Alertname string
				Expected  []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, c := range file.Tests {
		for _, look := range c.Look {
			cases[look.Alertname+map[bool]string{true: " fires", false: " does not fire"}[len(look.Expected) > 0]] = true
			if !strings.HasPrefix(c.Name, look.Alertname+" ") {
				t.Errorf("the case %q is about %s", c.Name, look.Alertname)
			}
		}
	}
	for _, a := range alerts(t) {
		for _, name := range []string{a.Alert + " fires", a.Alert + " does not fire"} {
			if !cases[name] {
				t.Errorf("there is no case in which %s", name)
			}
		}
	}
}

func TestAlertsFireInTheirCases(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not there: make deps installs it")
	}
	sitetest.Run(t, monitoring, "promtool", "test", "rules", "alerts_test.yaml")
	if testing.Short() {
		return // the rest, a test of promtool's cases, is left out by -short; make test-all runs it
	}
	// What it says about a rule that never fires.
	dir := t.TempDir()
	for _, name := range []string{"alerts.yaml", "alerts_test.yaml"} {
		text, err := os.ReadFile(filepath.Join(monitoring, name))
		if err != nil {
			t.Fatal(err)
		}
		broken := strings.Replace(string(text), "refdb_site_serving == 0", "refdb_site_serving == 2", 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(broken), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("promtool", "test", "rules", "alerts_test.yaml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "RefdbNotServing") {
		t.Errorf("a rule that never fires passes its cases: %v: %s", err, out)
	}
}

func TestARootThatIsGoneIsSaid(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := newGuard(t, local.SQLite(t), "eu-1", setting, "[site]\n\tstore = all")
	metricIs(t, at, "refdb_site_root_gone", 0)
	root := filepath.Join(g.dir, "git")
	c, err := config.Load(t.Context(), g.config)
	if err == nil {
		err = os.Rename(root, root+".away")
	}
	if err != nil {
		t.Fatal(err)
	}
	metricIs(t, at, "refdb_site_root_gone", 1)
	if s := g.status(); !s.RootGone || s.OK() {
		t.Errorf("status is content: %+v", s)
	}
	var found []string
	if err := check.Run(t.Context(), c, g.db, nil, check.Options{}, func(f check.Finding) { found = append(found, f.Code+" "+f.Subject) }); err != nil || !slices.Contains(found, check.RootGone+" "+root) {
		t.Errorf("check finds %q, %v", found, err)
	}
	// The mount point, where somebody has made the site's hooks anew.
	hooks := filepath.Join(root, config.HooksDir)
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the site's hooks alone are no root", func() bool { return metric(t, at, "refdb_site_root_gone") == 1 })
	if err := errors.Join(os.Remove(hooks), os.Remove(root), os.Rename(root+".away", root)); err != nil {
		t.Fatal(err)
	}
	metricIs(t, at, "refdb_site_root_gone", 0)
}

// A restart of the database's server would wait for it.
func TestAnotherSiteThatIsUnreachableIsNamed(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := idleGuard(t, local.SQLite(t), "eu-1", setting)
	lost := journal.New(t.TempDir())
	us, err := refdb.New(g.shared.Open(t), refdb.Options{Site: "us-1", Journal: lost})
	if err == nil {
		_, err = us.Recovery().Compare(t.Context())
	}
	if err == nil {
		err = errors.Join(us.Close(), lost.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	sitetest.Eventually(t, "it is known which sites are unreachable", func() bool { return g.status().Unreachable != nil })
	metricIs(t, at, "refdb_site_unreachable_sites", 1)
	if s := g.status().Unreachable; len(s) != 1 || s[0].Site != "us-1" || s[0].Seen.IsZero() {
		t.Errorf("status says %+v", s)
	}
}

func TestTheAlertsAndTheDashboardAskForWhatIsExported(t *testing.T) {
	t.Parallel()
	there := samples(exported(t))
	var expressions []string
	for _, a := range alerts(t) {
		expressions = append(expressions, a.Expr)
	}
	for _, e := range append(expressions, queries(t)...) {
		if strings.Count(e, "(") != strings.Count(e, ")") || strings.Count(e, "{") != strings.Count(e, "}") {
			t.Errorf("unbalanced: %s", e)
		}
		asked := selectorOf.FindAllStringSubmatch(e, -1)
		for _, m := range asked {
			asked = append(asked, alternatives(m[1], m[2])...)
		}
		if len(asked) == 0 && !strings.HasPrefix(e, "up{") && e != "" {
			t.Errorf("it asks for none of ours: %s", e)
		}
		for _, m := range asked {
			if !slices.ContainsFunc(there, func(s sample) bool { return selects(m[1], m[2], s) }) {
				t.Errorf("nothing exports %s, in %s", m[0], e)
			}
		}
	}
}

var explained = regexp.MustCompile("(?m)^\\| `(Refdb[A-Za-z]+)` \\| [^|]{20,} \\| [^|]{20,} \\|$")

func TestEachAlertIsExplainedToOperators(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, defined []string
	for _, row := range explained.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[1])
	}
	for _, a := range alerts(t) {
		defined = append(defined, a.Alert)
		if a.Expr == "" || a.Annotations["summary"] == "" || a.Labels["severity"] != "warning" && a.Labels["severity"] != "critical" {
			t.Errorf("incomplete: %+v", a)
		}
		for _, text := range a.Annotations {
			if strings.Count(text, "{{") != strings.Count(text, "}}") {
				t.Errorf("%s: unbalanced: %s", a.Alert, text)
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(defined)
	if !slices.Equal(documented, defined) {
		t.Errorf("docs/OPERATIONS.md explains %v, the rules have %v", documented, defined)
	}
}
