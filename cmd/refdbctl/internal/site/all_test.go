package site

import "testing"

func TestAPeersAddressIsThatOfTheProject(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"git@us:{project}.git":             "git@us:a b/c.git",
		"https://us.example/{project}.git": "https://us.example/a%20b/c.git",
	} {
		if got := peerAddress(from, "a b/c"); got != want {
			t.Errorf("%s: %s", from, got)
		}
	}
}
