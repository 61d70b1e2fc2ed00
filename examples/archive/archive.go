package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	leaseName = "blocks" // backups share it, the cleaner has it alone

	indexPrefix = "refs/archive/index/" // of each backup: the block that lists its blocks
	deadPrefix  = "refs/archive/dead/"  // of each block that a cleaner has deleted, or may still delete

	dead  = "dead"
	chunk = 1000 // refs written in one transaction
)

// An Archive is a directory of blocks, and the indexes that name them, in a database. Blocks of the same
// content are stored once: a backup also names what older ones wrote.
//
// No index ever names a block that is missing, whatever dies or freezes. The database can refuse the
// late write of a process that was frozen, but the directory can't refuse its late deletion. So
//
//   - an index is written under a shared lease, in a transaction that checks the lease;
//   - a name is recorded, under the exclusive lease and checked in the same way, before it is deleted,
//     and no backup uses a recorded name again: content that comes back gets another name.
type Archive struct {
	DB      *refdb.DB
	Project string
	Dir     string
}

// Backup stores contents as a new backup. After an error there is none of that name, except after one of
// class [refdb.OutcomeUnknown].
func (a *Archive) Backup(ctx context.Context, name string, contents ...[]byte) error {
	l, err := lease.Acquire(ctx, a.DB, a.Project, leaseName, lease.Shared)
	if err != nil {
		return err
	}
	defer l.Release(ctx)
	list, err := a.store(l.Context(), contents)
	if err != nil {
		return whileHeld(l, err)
	}
	return a.publish(l, name, list)
}

// whileHeld adds to an error that the lease was lost, if it was: then others may have cleaned away what
// was missed, and the class of the error says so.
func whileHeld(l *lease.Lease, err error) error { return errors.Join(err, l.Err()) }

// store makes blocks of contents and of the list of their names durable, and returns the list's name.
func (a *Archive) store(ctx context.Context, contents [][]byte) (string, error) {
	recorded, err := a.refs(ctx, deadPrefix)
	if err != nil {
		return "", err
	}
	var names []string
	for _, content := range contents {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		name, err := a.put(content, recorded)
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	list, err := a.put([]byte(strings.Join(names, "\n")), recorded)
	if err != nil {
		return "", err
	}
	return list, syncDirectory(a.Dir)
}

// publish writes the index, if the lease under which its blocks were stored still stands.
func (a *Archive) publish(l *lease.Lease, name, list string) error {
	return l.Update(l.Context(), []refdb.Update{{Ref: indexPrefix + name, New: refdb.Value(list)}})
}

// Forget removes a backup. Its blocks stay until the next cleaning.
func (a *Archive) Forget(ctx context.Context, name string) error {
	_, err := a.DB.Put(ctx, a.Project, indexPrefix+name, refdb.Deleted)
	return err
}

// Clean deletes the blocks that no index names. It waits for backups, and they wait for it.
func (a *Archive) Clean(ctx context.Context) error {
	l, err := lease.Acquire(ctx, a.DB, a.Project, leaseName, lease.Exclusive)
	if err != nil {
		return err
	}
	defer l.Release(ctx)
	garbage, err := a.garbage(l.Context())
	if err != nil {
		return whileHeld(l, err)
	}
	if err := a.record(l, garbage); err != nil {
		return err
	}
	return a.remove(garbage)
}

// garbage returns the files that no index names.
func (a *Archive) garbage(ctx context.Context) (names []string, err error) {
	used, err := a.used(ctx)
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(a.Dir)
	for _, file := range files {
		if _, ok := used[file.Name()]; !ok {
			names = append(names, file.Name())
		}
	}
	return names, err
}

// record records that the names may be deleted, if the lease still stands: then no index names them, and
// none ever will.
func (a *Archive) record(l *lease.Lease, names []string) error {
	recorded, err := a.refs(l.Context(), deadPrefix)
	if err != nil {
		return err
	}
	var updates []refdb.Update
	for _, name := range names {
		if _, ok := recorded[name]; !ok && !isTemporary(name) { // nobody else uses a temporary name
			updates = append(updates, refdb.Update{Ref: deadPrefix + name, New: dead})
		}
	}
	for part := range slices.Chunk(updates, chunk) {
		if err := l.Update(l.Context(), part); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes files. It may come at any time after record: the names are not used any more.
func (a *Archive) remove(names []string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(a.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Check returns an error if an index names a block that is missing or has another content.
func (a *Archive) Check(ctx context.Context) error {
	l, err := lease.Acquire(ctx, a.DB, a.Project, leaseName, lease.Shared)
	if err != nil {
		return err
	}
	defer l.Release(ctx)
	used, err := a.used(l.Context())
	var damaged []error
	for name := range used {
		if _, err := a.get(name); err != nil {
			damaged = append(damaged, err)
		}
	}
	return whileHeld(l, errors.Join(append(damaged, err)...))
}

// used returns the names of all blocks that indexes name, the lists included.
func (a *Archive) used(ctx context.Context) (map[string]refdb.Value, error) {
	used := map[string]refdb.Value{}
	indexes, err := a.refs(ctx, indexPrefix)
	for backup, list := range indexes {
		text, err := a.get(string(list))
		if err != nil {
			return nil, fmt.Errorf("backup %s: %w", backup, err)
		}
		used[string(list)] = list
		for _, name := range strings.Fields(string(text)) {
			used[name] = list
		}
	}
	return used, err
}

// refs returns what the refs of a prefix hold, by the rest of their names.
func (a *Archive) refs(ctx context.Context, prefix string) (map[string]refdb.Value, error) {
	refs := map[string]refdb.Value{}
	for ref, err := range a.DB.Refs(ctx, a.Project, prefix) {
		if err != nil {
			return nil, err
		}
		refs[strings.TrimPrefix(ref.Name, prefix)] = ref.Value
	}
	return refs, nil
}
