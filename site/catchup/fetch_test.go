package catchup

import "testing"

func TestThePeersNameIsThatOfItsHost(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"https://git@eu-1.example.com:8443/team/app.git": "eu-1.example.com",
		"ssh://git@eu-1/team/app.git":                    "eu-1",
		"git@eu-1.example.com:team/app.git":              "eu-1.example.com",
		"eu-1:team/app.git":                              "eu-1",
		"https://[2001:db8::1]/x.git":                    "2001-db8--1",
		"/srv/eu..1/a b.git":                             "srv-eu.1-a-b.git",
		"/srv/x.lock":                                    "srv-x",
	} {
		f, err := newSource(from, "")
		if err != nil || f.name != want {
			t.Errorf("%s: %q, %v, want %q", from, f.name, err, want)
		}
	}
}
