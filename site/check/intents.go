package check

import (
	"context"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// siteIntents are the intents that are findings, by project.
type siteIntents struct {
	pending map[string][]driver.Intent // too old
	decided map[string][]driver.Intent // of this site, and not applied for too long
}

// readIntents reads the intents of all repositories in one request: there are few intents, and a
// request for each repository would mostly find none.
func (f *siteCheck) readIntents(ctx context.Context, repositories []config.Repository) error {
	here := make(map[string]bool, len(repositories))
	for _, r := range repositories {
		here[r.Project] = true
	}
	read := func(filter driver.IntentFilter) (map[string][]driver.Intent, error) {
		if len(repositories) == 1 {
			filter.Project = repositories[0].Project
		}
		late := map[string][]driver.Intent{}
		for i, err := range f.db.Intents().All(ctx, filter) {
			if err != nil {
				return nil, err
			}
			if here[i.Project] && i.Age > intentPatience {
				late[i.Project] = append(late[i.Project], i)
			}
		}
		return late, nil
	}
	var err error
	if f.intents.pending, err = read(driver.IntentFilter{}); err == nil {
		f.intents.decided, err = read(driver.IntentFilter{Owner: f.Site, Decided: true})
	}
	return err
}

// pending finds pushes that were neither completed nor dropped, and decisions that this site has
// not applied.
func (k *repositoryCheck) pending() {
	for _, i := range k.intents.pending[k.Project] {
		k.find(IntentPending, i.Ref, fmt.Sprintf("%s announced %s → %s %s ago, and the intent is still pending: the site's daemon ends it, or, if the daemon does not run, `refdbctl site repair` there; if the site is gone for good, run `refdbctl locks resolve %s %s --take-new --reason TEXT` "+
			"if the database or a site has the objects, or else with --keep-old",
			i.Owner, i.Old.Abbrev(), i.New.Abbrev(), i.Age.Round(time.Second), i.Project, i.Ref), nil)
	}
	for _, i := range k.intents.decided[k.Project] {
		if i.Decision != driver.Revoked {
			k.find(IntentDecided, i.Ref, fmt.Sprintf("%s decided %s (%s): this site has not applied the decision yet; its daemon does so, or, if the daemon does not run, `refdbctl site repair`",
				i.DecidedBy, i.Decision, i.Reason), nil)
		}
	}
}
