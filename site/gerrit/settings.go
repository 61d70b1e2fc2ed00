package gerrit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// The guard's modules.
const (
	DbModule  = "com.github.globalrefdb.gerrit.DbModule"
	SysModule = "com.github.globalrefdb.gerrit.SysModule"
)

// A multiplicity is how a value must occur among the values of a key.
type multiplicity int

const (
	single    multiplicity = iota // the only value, or the last one of the key
	oneOfMany                     // beside other values
	ifUnset                       // only if the key has no value
)

// A Setting is a setting that the guard needs in one of Gerrit's configuration files.
type Setting struct {
	File, Key, Value string
	Why              string
	multiplicity     multiplicity
}

// defaultSocket is where the guard looks for the daemon unless gerrit.config sets another path.
const defaultSocket = "/run/refdb/site.sock"

// Settings returns the settings that the guard needs. The socket is the daemon's. The instance ID
// is for a Gerrit that has none.
func (d *Directory) Settings(socket, instance string) []Setting {
	all := []Setting{
		{GerritConfig, "gerrit.installDbModule", DbModule, "Gerrit would move refs without the guard", oneOfMany},
		{GerritConfig, "gerrit.installModule", SysModule, "Gerrit would start without the guard", oneOfMany},
		{GerritConfig, "gerrit.instanceId", instance, "it distinguishes the sites", ifUnset},
	}
	if socket != defaultSocket || d.gerrit.last("refdb.socket") != "" {
		all = append(all, Setting{GerritConfig, "refdb.socket", socket, "the daemon listens there", single})
	}
	for _, key := range []string{"core.fsyncObjectFiles", "core.fsyncRefFiles"} {
		all = append(all, Setting{JGitConfig, key, "true", "acknowledged updates may be lost in a power cut", single})
	}
	for _, s := range [][2]string{{"receive.autogc", "false"}, {"gc.auto", "0"}, {"gc.autoPackLimit", "0"}, {"gc.pruneExpire", "never"}, {"gc.prunePackExpire", "never"}} {
		all = append(all, Setting{JGitConfig, s[0], s[1], "objects that other sites build on would be pruned: refdbctl site maintain prunes", single})
	}
	return all
}

// Restorable returns the settings that [Directory.Settings] and the set-up of a second site may
// have made.
func (d *Directory) Restorable() []Setting {
	return append(d.Settings("", ""), BasePathAt(""))
}

// OwnInstance is the setting of an instance ID that replaces any existing one.
func OwnInstance(id string) Setting {
	return Setting{GerritConfig, "gerrit.instanceId", id, "another site uses the present one", single}
}

// BasePathAt is the setting of the directory of the repositories.
func BasePathAt(root string) Setting {
	return Setting{GerritConfig, "gerrit.basePath", root, "it is the site's root", single}
}

// A Change is a change in a file that was made or is planned. Before and After are "" where there
// is no value.
type Change struct {
	Where  string // the file, or what else is changed
	What   string // the key, or which part
	Before string
	After  string
}

// holds reports whether the values of a key satisfy the setting.
func (s Setting) holds(have []string) bool {
	switch s.multiplicity {
	case oneOfMany:
		return slices.Contains(have, s.Value)
	case ifUnset:
		return len(have) > 0 && have[len(have)-1] != ""
	}
	return len(have) > 0 && sameValue(have[len(have)-1], s.Value)
}

// sameValue reports whether git treats two values as the same.
func sameValue(a, b string) bool {
	return a == b || truth(a) != "" && truth(a) == truth(b)
}

func truth(value string) string {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return "true"
	case "false", "no", "off":
		return "false"
	}
	return ""
}

// record is the section that records the value that a key was set to, and its previous value.
func (s Setting) record(key string) string { return "refdb." + s.Key + "." + key }

// fileValues are the values of keys in a file: with the files that it includes, as Gerrit reads it,
// and in the file itself.
type fileValues struct{ effective, own values }

// edits returns the edits that make the setting hold, and record it; none if it holds already.
func (s Setting) edits(v fileValues) ([]config.Edit, []Change) {
	have := v.effective.all(s.Key)
	if s.holds(have) {
		return nil, nil
	}
	before := ""
	if s.multiplicity != oneOfMany && len(have) > 0 {
		before = have[len(have)-1]
	}
	edits := []config.Edit{{"--replace-all", s.record("set"), s.Value}}
	// The previous value is the one from before the first time. The value of an included file
	// counts again once ours is removed.
	if own := v.own.last(s.Key); s.multiplicity != oneOfMany && own != "" && len(v.own.all(s.record("set"))) == 0 {
		edits = append(edits, config.Edit{"--replace-all", s.record("before"), own})
	}
	if s.multiplicity == oneOfMany {
		edits = append(edits, config.Edit{"--add", s.Key, s.Value})
	} else {
		edits = append(edits, config.Edit{"--replace-all", s.Key, s.Value})
	}
	return edits, []Change{{s.File, s.Key, before, s.Value}}
}

// restore returns the edits that restore the previous value, unless the key was changed since.
func (s Setting) restore(v fileValues) (edits []config.Edit, changes []Change) {
	have := v.own.all(s.Key)
	set, before := v.own.last(s.record("set")), v.own.last(s.record("before"))
	recorded := len(v.own.all(s.record("set"))) > 0
	if recorded {
		edits = append(edits, config.Edit{"--remove-section", "refdb." + s.Key})
	}
	switch {
	case s.multiplicity == oneOfMany:
		// The value is the guard's, whoever has set it.
		if slices.Contains(have, s.Value) {
			edits = append(edits, config.Edit{"--unset-all", s.Key, "^" + regexp.QuoteMeta(s.Value) + "$"})
			changes = append(changes, Change{s.File, s.Key, s.Value, ""})
		}
	case !recorded, len(have) == 0, have[len(have)-1] != set:
	case before != "":
		edits = append(edits, config.Edit{"--replace-all", s.Key, before})
		changes = append(changes, Change{s.File, s.Key, set, before})
	default:
		edits = append(edits, config.Edit{"--unset-all", s.Key})
		changes = append(changes, Change{s.File, s.Key, set, ""})
	}
	return edits, changes
}

// Missing returns the settings that don't hold, with the present values of their keys.
func (d *Directory) Missing(ctx context.Context, settings []Setting) (missing []Setting, have []string, err error) {
	for _, s := range settings {
		v, err := readConfig(ctx, d.file(s.File))
		if err != nil {
			return nil, nil, err
		}
		if !s.holds(v.all(s.Key)) {
			missing, have = append(missing, s), append(have, v.last(s.Key))
		}
	}
	return missing, have, nil
}

// ConfigPlan is a list of planned changes in Gerrit's configuration files.
type ConfigPlan struct {
	Changes []Change
	dir     *Directory
	edits   map[string][]config.Edit
}

// PlanSettings returns the changes that make the settings hold. It returns an error if no change of
// the file itself can, because a file that it includes sets another value afterwards.
func (d *Directory) PlanSettings(ctx context.Context, settings []Setting) (ConfigPlan, error) {
	p, err := d.plan(ctx, settings, Setting.edits)
	if err != nil {
		return p, err
	}
	for file, edits := range p.edits {
		after, err := d.after(ctx, file, edits)
		if err != nil {
			return p, err
		}
		for _, s := range settings {
			if s.File == file && after != nil && !s.holds(after.all(s.Key)) {
				return p, d.included(ctx, s, after.last(s.Key), fmt.Sprintf("after the file's own value, which should be %s: %s", s.Value, s.Why))
			}
		}
	}
	return p, nil
}

// PlanRestore returns the changes that reverse the settings: each key that was set gets its
// previous value. It returns an error if a module of the guard would remain because of an included
// file: without its jar Gerrit does not start.
func (d *Directory) PlanRestore(ctx context.Context, settings []Setting) (ConfigPlan, error) {
	p, err := d.plan(ctx, settings, Setting.restore)
	if err != nil {
		return p, err
	}
	for _, s := range settings {
		v, err := d.readValues(ctx, s.File)
		if err != nil {
			return p, err
		}
		own, all := v.own.all(s.Key), v.effective.all(s.Key)
		if s.multiplicity == oneOfMany && count(all, s.Value) > count(own, s.Value) {
			return p, d.included(ctx, s, s.Value, "and without the guard's jar Gerrit does not start")
		}
	}
	return p, nil
}

func count(values []string, value string) (n int) {
	for _, v := range values {
		if v == value {
			n++
		}
	}
	return n
}

// included returns the error about a value that a file has by including another one.
func (d *Directory) included(ctx context.Context, s Setting, value, why string) error {
	from, err := includedFrom(ctx, d.file(s.File), s.Key, value)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s includes %s, which sets %s = %s, %s: remove that from %s", s.File, from, s.Key, value, why, from)
}

// after returns the values of a file that includes others after edits; nil for a file that includes
// none. It is evaluated in the same directory, because the paths of included files may be relative
// to it.
func (d *Directory) after(ctx context.Context, file string, edits []config.Edit) (values, error) {
	own, err := readOwn(ctx, d.file(file))
	if err != nil || len(own.all("include.path")) == 0 {
		return nil, err
	}
	text, err := config.Edited(ctx, d.file(file), edits)
	if err != nil {
		return nil, err
	}
	tried, err := os.CreateTemp(filepath.Dir(d.file(file)), ".refdb-*")
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // read-only callers can't write here
	}
	if err != nil {
		return nil, err
	}
	defer os.Remove(tried.Name())
	_, err = tried.Write(text)
	if err = errors.Join(err, tried.Close()); err != nil {
		return nil, err
	}
	return readConfig(ctx, tried.Name())
}

func (d *Directory) readValues(ctx context.Context, file string) (v fileValues, err error) {
	if v.effective, err = readConfig(ctx, d.file(file)); err != nil {
		return v, err
	}
	v.own, err = readOwn(ctx, d.file(file))
	return v, err
}

func (d *Directory) plan(ctx context.Context, settings []Setting, of func(Setting, fileValues) ([]config.Edit, []Change)) (ConfigPlan, error) {
	p := ConfigPlan{dir: d, edits: map[string][]config.Edit{}}
	read := map[string]fileValues{}
	for _, s := range settings {
		v, ok := read[s.File]
		if !ok {
			var err error
			if v, err = d.readValues(ctx, s.File); err != nil {
				return p, err
			}
			read[s.File] = v
		}
		edits, changes := of(s, v)
		p.Changes = append(p.Changes, changes...)
		if len(edits) > 0 {
			p.edits[s.File] = append(p.edits[s.File], edits...)
		}
	}
	return p, nil
}

// Apply makes the changes, file by file. Each file is replaced at once: if interrupted, Apply has
// changed some files completely. jgit.config comes first, because Gerrit with the guard does not
// start without it.
func (p ConfigPlan) Apply(ctx context.Context) error {
	for _, file := range []string{JGitConfig, GerritConfig} {
		if edits := p.edits[file]; len(edits) > 0 {
			if err := config.Rewrite(ctx, p.dir.file(file), edits); err != nil {
				return err
			}
		}
	}
	return nil
}
