package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// defaultLife is how long a token is valid unless --expires says otherwise.
const defaultLife = 90 * 24 * time.Hour

func (a *app) tokenCommand() *cobra.Command {
	return cli.Group("token", "Create, list and revoke tokens of refdb-server", a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
}

// createdToken is a token with its text.
type createdToken struct {
	access.Token
	text string
}

var createdTokenColumns = []output.Column[createdToken]{
	{Name: "token", Value: func(t createdToken) any { return t.text }},
	{Name: "id", Value: func(t createdToken) any { return t.ID[:access.ShownID] }},
	{Name: "subject", Value: func(t createdToken) any { return t.Subject }},
	{Name: "expires", Value: func(t createdToken) any { return t.Expires }},
}

func (a *app) tokenCreateCommand() *cobra.Command {
	life := cli.Age(defaultLife)
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "create SUBJECT",
		Short: "Create a token and print it",
		Long: `Create a token that authenticates a client of refdb-server as SUBJECT, and print it. The token is shown once: the
database has only its SHA-256. A subject may have several tokens, so that a token can be replaced without a gap. SUBJECT
has at most 200 bytes, no colon, no slash and no asterisk: subjects of JWTs and certificates have a colon.

A token gives no right by itself: see refdbctl access allow.

Servers accept the token within 10 seconds. It expires by the database's clock, after a minute to ten years.

Fields: ` + output.Names(createdTokenColumns),
		Example: `  (umask 077; refdbctl token create ci-deploy --expires 30d > ci-deploy.token)`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := access.CheckTokenSubject(args[0]); err != nil {
				return err
			}
			if d := time.Duration(life); d < access.MinLife || d > access.MaxLife {
				return exit.Usage(fmt.Sprintf("--expires %s: give a minute to ten years", d))
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.createToken(ctx, db, args[0], time.Duration(life), why) })
		}),
	}
	cmd.Flags().Var(&life, "expires", "the `age` after which the token is no longer valid, such as 30d or 12h")
	why.AddFlag(cmd)
	return cmd
}

func (a *app) createToken(ctx context.Context, db *refdb.DB, subject string, life time.Duration, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "token create"); err != nil {
		return err
	}
	var made createdToken
	what := cli.Act{Action: "token create", Detail: fmt.Sprintf("%s, for %s", subject, life), Reason: why}
	err := a.Audited(ctx, db, what, func() (_ string, err error) {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		made.text, made.Token, err = access.CreateToken(limited, db, subject, life, a.By())
		if errors.Is(err, refdb.ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: if refdbctl token list shows the token %s, revoke it: its text is lost", err, made.ID[:access.ShownID])
		}
		if err != nil {
			return "", err
		}
		return "token " + made.ID[:access.ShownID], nil
	})
	if err != nil {
		return err
	}
	a.Note("the token %s of %s expires at %s; it is not shown again", made.ID[:access.ShownID], output.Escape(subject), made.Expires.Format(time.RFC3339))
	return cli.PrintOne(a.Run, createdTokenColumns, made, made.text)
}

// listedToken is a token, and whether it has expired.
type listedToken struct {
	access.Token
	left time.Duration
}

var tokenColumns = []output.Column[listedToken]{
	{Name: "id", Value: func(t listedToken) any { return t.ID[:access.ShownID] }},
	{Name: "subject", Value: func(t listedToken) any { return t.Subject }},
	{Name: "expires", Value: func(t listedToken) any { return t.Expires }},
	{Name: "expired", Value: func(t listedToken) any { return t.left <= 0 }},
	{Name: "created", Value: func(t listedToken) any { return output.OrNil(!t.Created.IsZero(), t.Created) },
		Text: func(t listedToken) string {
			return output.OrDash(!t.Created.IsZero(), t.Created.UTC().Format(time.RFC3339))
		}},
	output.Optional("by", func(t listedToken) string { return t.By }),
}

func (a *app) tokenListCommand() *cobra.Command {
	var subject string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens",
		Long: `List the tokens of refdb-server's clients, without their secrets. Revoked tokens are not listed: refdbctl audit list
names them. Expired tokens are listed until they are revoked.

Fields: ` + output.Names(tokenColumns) + `
(id: the first digits of the SHA-256 of the token; by: who created it)`,
		Example: `  refdbctl token list --subject ci-deploy`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.Limited(ctx)
				defer cancel()
				all, err := a.accessRecords(limited, db)
				if err != nil {
					return err
				}
				now, err := db.Now(limited)
				if err != nil {
					return err
				}
				var listed []listedToken
				for _, t := range all.Tokens {
					if subject == "" || t.Subject == subject {
						listed = append(listed, listedToken{t, t.Expires.Sub(now)})
					}
				}
				return cli.PrintRows(a.Run, tokenColumns, cli.All(listed))
			})
		}),
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only tokens of this `subject`")
	return cmd
}

// accessRecords reads all tokens and rules, and tells the operator how many of them it can't read.
func (a *app) accessRecords(ctx context.Context, db *refdb.DB) (access.Records, error) {
	all, err := access.ReadRecords(ctx, db)
	if all.Unreadable > 0 {
		a.Note("%s of tokens and rules can't be read, and allow nothing: a later version may have written them", output.Count(all.Unreadable, "record"))
	}
	return all, err
}

var revokedColumns = []output.Column[access.Token]{
	{Name: "revoked", Value: func(t access.Token) any { return t.ID[:access.ShownID] }},
	{Name: "subject", Value: func(t access.Token) any { return t.Subject }},
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var c cli.Confirmation
	var why cli.Reason
	var subject string
	cmd := &cobra.Command{
		Use:   "revoke [ID...] [--subject SUBJECT]",
		Short: "Revoke tokens",
		Long: `Revoke the tokens with the given IDs, as refdbctl token list shows them, or all tokens of a subject. At most 10 seconds
later no server accepts them. Locks that were taken with a token stand until their leases end; refdbctl locks purge
ends them earlier. Rules stay: see refdbctl access remove.

On a terminal the command asks for confirmation; elsewhere --yes is required.

Fields: ` + output.Names(revokedColumns),
		Example: `  refdbctl token revoke 3f9a0c21d4b87e65 --reason "it was in a log"
  refdbctl token revoke --subject ci-deploy --yes`,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if (len(args) == 0) == (subject == "") {
				return exit.Usage("give either IDs or --subject")
			}
			for _, id := range args {
				if len(id) < access.ShownID || strings.Trim(id, "0123456789abcdef") != "" {
					// The argument may be the token itself.
					return exit.Usage(fmt.Sprintf("one of the arguments is not an ID: give the %d digits that refdbctl token list shows, not the token", access.ShownID))
				}
			}
			if err := c.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.revokeTokens(ctx, db, &c, args, subject, why) })
		}),
	}
	c.AddYes(cmd)
	why.AddFlag(cmd)
	cmd.Flags().StringVar(&subject, "subject", "", "all tokens of this `subject`")
	return cmd
}

func (a *app) revokeTokens(ctx context.Context, db *refdb.DB, c *cli.Confirmation, ids []string, subject string, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "token revoke"); err != nil {
		return err
	}
	limited, cancel := a.Limited(ctx)
	all, err := a.accessRecords(limited, db)
	cancel()
	if err != nil {
		return err
	}
	var tokens []access.Token
	for _, t := range all.Tokens {
		if subject != "" && t.Subject == subject {
			tokens = append(tokens, t)
		}
	}
	for _, id := range ids {
		found := false
		for _, t := range all.Tokens {
			if strings.HasPrefix(t.ID, id) {
				tokens, found = append(tokens, t), true
			}
		}
		if !found {
			return exit.With(exit.Failed, "no such token: "+id+" (refdbctl token list shows all)")
		}
	}
	if len(tokens) == 0 {
		return exit.With(exit.Failed, "no such subject: "+subject+" has no token (refdbctl token list shows all)")
	}
	var detail []string
	for _, t := range tokens {
		detail = append(detail, fmt.Sprintf("%s of %s", t.ID[:access.ShownID], t.Subject))
	}
	revoked := 0
	return c.Perform(ctx, a.Run, db, cli.Operation{
		Act:      cli.Act{Action: "token revoke", Detail: output.Enumerate(detail), Reason: why},
		Question: fmt.Sprintf("Revoke %s: %s?", output.Count(len(tokens), "token"), output.Escape(output.Enumerate(detail))),
		Do: func() (string, error) {
			var err error
			for _, t := range tokens {
				limited, cancel := a.Limited(ctx)
				err = access.RevokeToken(limited, db, t.ID)
				cancel()
				if err != nil && !errors.Is(err, access.ErrNotFound) {
					break
				}
				err = nil
				revoked++
			}
			return fmt.Sprintf("revoked %d of %d", revoked, len(tokens)), err
		},
		Print: func(err error) error {
			return errors.Join(cli.PrintRows(a.Run, revokedColumns, cli.All(tokens[:revoked])), err)
		},
	})
}
