package main

import (
	"context"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
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
	im.progress.bar = newBar(im.app.err, total)
	return nil
}

func newBar(to io.Writer, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(to),
		progressbar.OptionSetDescription("refs"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

func (p *progress) add(n int) {
	if p.bar != nil {
		p.bar.Add(n) // what it can't draw is no loss
	}
}

// of shows how many of how many are done.
func (p *progress) of(to io.Writer, done, total int) {
	if p.bar == nil {
		p.bar = newBar(to, total)
	}
	p.bar.Set(done)
}

func (p *progress) stop() {
	if p.bar != nil {
		p.bar.Clear()
	}
}
