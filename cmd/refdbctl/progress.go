package main

import (
	"context"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/gitrepo"
)

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct {
	bar *progressbar.ProgressBar
}

// startProgress counts the refs first, where there is somebody to show it to.
func (im *importer) startProgress(ctx context.Context, repo *gitrepo.Repo) error {
	if !isTerminal(im.app.err) {
		return nil
	}
	total := 0
	counter := &local{repo: repo, all: im.all, skipped: func(string) {}, refused: func(string) {}}
	for _, err := range counter.refs(ctx) {
		if err != nil {
			return err
		}
		total++
	}
	im.progress.bar = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(im.app.err),
		progressbar.OptionSetDescription("refs"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	return nil
}

func (p *progress) add(n int) {
	if p.bar != nil {
		p.bar.Add(n) // what it can't draw is no loss
	}
}

func (p *progress) stop() {
	if p.bar != nil {
		p.bar.Clear()
	}
}
