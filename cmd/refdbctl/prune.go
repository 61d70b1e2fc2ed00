package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
)

// deleteMissing deletes the refs in the database that the repository does not have.
func (im *importer) deleteMissing(ctx context.Context, repo *gitrepo.Repo) error {
	if im.refused > 0 {
		return &status{exitError, fmt.Sprintf("%s: nothing was pruned, because %s of the repository can't be read or stored: see to them first, "+
			"or they would be taken for deleted", im.project, count(im.refused, "ref"))}
	}
	missing, err := im.missing(ctx, repo)
	if err != nil || len(missing) == 0 {
		return err
	}
	if !im.dryRun {
		if err := im.ask(ctx, im.app, fmt.Sprintf("Delete %s of project %s that the repository does not have, from %s to %s?",
			count(len(missing), "ref"), output.Escape(im.project), output.Escape(missing[0].Name),
			output.Escape(missing[len(missing)-1].Name))); err != nil {
			return err
		}
	}
	d := &deletion{app: im.app, db: im.db, project: im.project, tell: im.tellPruned}
	err = d.run(ctx, missing, im.dryRun)
	im.pruned = d.deleted
	return err
}

func (im *importer) tellPruned(ref refdb.Ref, result string) {
	switch result {
	case "changed":
		im.different++
		im.say(difference{ref: ref.Name, result: "different", global: ref.Value, detail: "not in the repository, and changed meanwhile"})
	case "locked":
		im.locked++
		im.say(difference{ref: ref.Name, result: "locked", global: ref.Value, detail: "not in the repository"})
	}
}

// missing lists what only the database has. The repository is read after it: a
// ref that is pushed meanwhile is there.
func (im *importer) missing(ctx context.Context, repo *gitrepo.Repo) ([]refdb.Ref, error) {
	var global []refdb.Ref
	for ref, err := range im.refs(ctx, im.db, im.project, "", false) {
		if err != nil {
			return nil, err
		}
		if im.all || site.Kept(ref.Name) {
			global = append(global, ref)
		}
	}
	here := make(map[string]bool)
	from := im.local(repo)
	from.skipped = func(string) {}
	for ref, err := range from.refs(ctx) {
		if err != nil {
			return nil, err
		}
		here[ref.Name] = true
	}
	return slices.DeleteFunc(global, func(ref refdb.Ref) bool { return here[ref.Name] }), nil
}
