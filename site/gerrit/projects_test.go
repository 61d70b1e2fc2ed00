package gerrit_test

import (
	"slices"
	"testing"
)

func TestProjectsWithoutRepositoryAreOneALine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{"": nil, "team/app\na name with spaces\n": {"team/app", "a name with spaces"}} {
		d := open(t, map[string]string{"etc/gerrit.config": "", "data/refdb/without-repository": text})
		if got, err := d.ProjectsWithoutRepository(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if got, err := open(t, map[string]string{"etc/gerrit.config": ""}).ProjectsWithoutRepository(); err != nil || got != nil {
		t.Errorf("none: %q, %v", got, err)
	}
}
