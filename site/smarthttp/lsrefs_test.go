package smarthttp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// pkt returns the packets of a request: "" is a flush packet, "|" a delimiter packet.
func pkt(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		switch line {
		case "":
			b.WriteString("0000")
		case "|":
			b.WriteString("0001")
		default:
			fmt.Fprintf(&b, "%04x%s", len(line)+4, line)
		}
	}
	return b.String()
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
}

func TestOnlyRequestsForListsOfRefsHaveNames(t *testing.T) {
	t.Parallel()
	list := pkt("command=ls-refs\n", "agent=git/2", "object-format=sha1", "|", "peel\n", "ref-prefix refs/heads/", "")
	for name, row := range map[string]struct {
		body, encoding string
		want           bool
	}{
		"a list":                         {list, "", true},
		"a list of everything":           {pkt("command=ls-refs", ""), "", true},
		"packed":                         {gzipped(list), "gzip", true},
		"a fetch":                        {pkt("command=fetch", "|", "want 1", ""), "", false},
		"a fetch of version 0":           {pkt("want 1\n", "") + pkt("done"), "", false},
		"nothing":                        {"", "", false},
		"no end":                         {pkt("command=ls-refs"), "", false},
		"a cut packet":                   {list[:len(list)-6], "", false},
		"another command behind":         {list + pkt("command=fetch", ""), "", false},
		"the name begins like that":      {pkt("command=ls-refs-all", ""), "", false},
		"not a packet":                   {"xxxx", "", false},
		"a NUL":                          {pkt("command=ls-refs", "|", "ref-prefix \x00", ""), "", false},
		"packed, and called plain":       {gzipped(list), "", false},
		"plain, and called packed":       {list, "gzip", false},
		"packed in another way":          {list, "br", false},
		"large when unpacked":            {gzipped(list + strings.Repeat(" ", maxListRequest)), "gzip", false},
		"a packet that is no text":       {"0003", "", false},
		"a response end in the request":  {pkt("command=ls-refs") + "0002", "", false},
		"a length with a sign":           {"+00fcommand=ls-refs0000", "", false},
		"the command is not what begins": {pkt("agent=git/2", "command=ls-refs", ""), "", false},
	} {
		if _, got := lsRefsName([]byte(row.body), row.encoding); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRequestsThatGetDifferentAnswersHaveDifferentNames(t *testing.T) {
	t.Parallel()
	name := func(lines ...string) string {
		t.Helper()
		n, ok := lsRefsName([]byte(pkt(append(append([]string{"command=ls-refs"}, lines...), "")...)), "")
		if !ok {
			t.Fatal(lines)
		}
		return n
	}
	base := name("agent=git/2.1", "object-format=sha1", "|", "peel", "ref-prefix refs/heads/")
	if name("agent=git/2.2", "session-id=x", "object-format=sha1", "|", "peel", "ref-prefix refs/heads/") != base {
		t.Error("the client's identity changes the name")
	}
	for _, other := range [][]string{
		{"object-format=sha256", "|", "peel", "ref-prefix refs/heads/"},
		{"object-format=sha1", "|", "ref-prefix refs/heads/"},
		{"object-format=sha1", "|", "peel", "ref-prefix refs/heads"},
		{"object-format=sha1", "|", "peel", "ref-prefix refs/heads/", "ref-prefix refs/tags/"},
		{"object-format=sha1", "|", "peelref-prefix refs/heads/"},
		{"object-format=sha1", "|", "peel", "ref-prefix refs/heads/", "agent=1"},
		{"object-format=sha1"},
	} {
		if name(other...) == base {
			t.Errorf("%q has the name of another request", other)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		method, url string
		project     string
		service     service
		status      int
	}{
		{"GET", "/team/app.git/info/refs?service=git-upload-pack", "team/app", advertiseRefs, 0},
		{"GET", "/team/app/info/refs?service=git-receive-pack", "team/app", advertisePush, 0},
		{"POST", "/team/app.git/git-upload-pack", "team/app", uploadPack, 0},
		{"POST", "/app/git-receive-pack", "app", receivePack, 0},
		{"GET", "/team/app.git/info/refs", "", 0, 403},
		{"GET", "/team/app.git/info/refs?service=git-upload-archive", "", 0, 403},
		{"GET", "/team/app.git/info/refs?service=git-upload-pack&service=git-receive-pack", "", 0, 403},
		{"POST", "/team/app.git/info/refs?service=git-upload-pack", "", 0, 405},
		{"GET", "/team/app.git/git-upload-pack", "", 0, 405},
		{"GET", "/team/app.git/objects/info/packs", "", 0, 404},
		{"GET", "/", "", 0, 404},
	} {
		project, service, status := route(httptest.NewRequest(row.method, row.url, nil))
		if project != row.project || service != row.service || status != row.status {
			t.Errorf("%s %s: %q, %d, %d", row.method, row.url, project, service, status)
		}
	}
}
