package main_test

import "testing"

// Git shows these hooks the names of refs as the client knows them, and reference-transaction the whole names.
func TestANamespaceIsPartOfTheNameThatTheDaemonIsAskedAbout(t *testing.T) {
	t.Parallel()
	for namespace, prefix := range map[string]string{
		"":         "",
		"fork":     "refs/namespaces/fork/",
		"a/b":      "refs/namespaces/a/refs/namespaces/b/",
		"/a//b///": "refs/namespaces/a/refs/namespaces/b/",
	} {
		s := newSite(t)
		d := s.serve("ok\n")
		for _, r := range []*run{s.update("refs/heads/x", a, b), s.preReceive(a + " " + b + " refs/heads/x\n")} {
			r.env = append(r.env, "GIT_NAMESPACE="+namespace)
			r.do().is(0)
		}
		r := s.transaction("prepared", a+" "+b+" refs/heads/x\n")
		r.env = append(r.env, "GIT_NAMESPACE="+namespace)
		r.do().is(0)
		got := d.requests()
		for i, want := range []string{prefix + "refs/heads/x", prefix + "refs/heads/x", "refs/heads/x"} {
			if i >= len(got) {
				t.Fatalf("namespace %q: %d requests", namespace, len(got))
			}
			if body := string(got[i].Body); body != a+" "+b+" "+want+"\n" {
				t.Errorf("namespace %q: %s: the daemon was asked about %q, want %s", namespace, got[i].State, body, want)
			}
		}
	}
}
