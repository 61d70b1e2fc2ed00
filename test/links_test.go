package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Every relative link of a document leads to a file of the repository and, if it has an anchor, to a heading.
func TestEveryLinkInTheDocumentsLeadsSomewhere(t *testing.T) {
	t.Parallel()
	checked, broken := brokenLinks(t, os.DirFS(".."))
	for _, b := range broken {
		t.Error(b)
	}
	if checked < 60 {
		t.Errorf("only %d links were found", checked)
	}
}

// Every cited rule of PROTOCOL.md exists, and each number is used once.
func TestEveryRuleThatIsCitedIsThere(t *testing.T) {
	t.Parallel()
	cited, broken := brokenCitations(t, os.DirFS(".."))
	for _, b := range broken {
		t.Error(b)
	}
	if cited < 100 {
		t.Errorf("only %d citations were found", cited)
	}
}

// Every heading of a document that a message or a comment names is there.
func TestEveryHeadingThatIsNamedIsThere(t *testing.T) {
	t.Parallel()
	named, broken := brokenHeadings(t, os.DirFS(".."))
	for _, b := range broken {
		t.Error(b)
	}
	if named < 5 {
		t.Errorf("only %d names of headings were found", named)
	}
}

func TestBrokenLinksAndCitationsAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"README.md": "# One\n[a](docs/PROTOCOL.md#the-rules), [b](gone.md), [c](#two), [d](#one), [e](docs/PROTOCOL.md#rules), `[f](not-a-link.md)`\n" +
			"```\n[g](nor-this.md)\n# Two\n```\n[h](https://example.com/x.md) [i](docs) (docs/PROTOCOL.md, A1, A3)\n",
		"docs/PROTOCOL.md": "# The rules\n## The `rules`: 2, \"really\" …\n[a](#the-rules-2-really-)\n- **A1.** See A2 and A9.\n- **A2.** Once.\n- **A2.** Twice.\n",
		"a/b.go": "package b\n\n// docs/PROTOCOL.md, A1 and\n// A4; docs/DESIGN.md, section 8. A5 is something else.\n" +
			"// See PROTOCOL.md, \"The rules\" and \"The laws\"; \"A word\".\nconst s = \"GONE.md, \\\"The rules\\\"\" + `PROTOCOL.md, \"The orders\"`\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	_, links := brokenLinks(t, os.DirFS(dir))
	_, citations := brokenCitations(t, os.DirFS(dir))
	named, headings := brokenHeadings(t, os.DirFS(dir))
	if named != 4 {
		t.Errorf("%d names of headings were found", named)
	}
	want := []string{
		"README.md: gone.md: there is no such file",
		"README.md: #two: README.md has no such heading",
		"README.md: docs/PROTOCOL.md#rules: docs/PROTOCOL.md has no such heading",
		"README.md: PROTOCOL.md has no rule A3",
		"a/b.go: PROTOCOL.md has no rule A4",
		"a/b.go: DESIGN.md has no numbered sections",
		`a/b.go: PROTOCOL.md has no heading "The laws"`,
		`a/b.go: PROTOCOL.md has no heading "The orders"`,
		`a/b.go: GONE.md has no heading "The rules"`,
		"docs/PROTOCOL.md: there are two rules A2",
		"docs/PROTOCOL.md: PROTOCOL.md has no rule A9",
	}
	got := slices.Concat(links, citations, headings)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var (
	fences    = regexp.MustCompile("(?ms)^[ ]*```.*?^[ ]*```[^\n]*$")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	external  = regexp.MustCompile(`^[a-z]+:`)
	ruleStart = regexp.MustCompile(`(?m)^ *- \*\*([A-Z]\d+)\.\*\*`)
	ruleName  = regexp.MustCompile(`\b[A-Z]\d+\b`)
	// A citation is a name after the document's, with others that follow: "PROTOCOL.md, I7 and I8".
	citation = regexp.MustCompile(`PROTOCOL\.md(?:\]\([^)]*\))?,[\s/*#]*([A-Z]\d+\b(?:(?:,|[\s/*#]+and|[\s/*#]+to)[\s/*#]+[A-Z]\d+\b)*)`)
	// The name of a heading is one after the document's, with others that follow: OPERATIONS.md, "Alerts" and "At night". In Go its quotes
	// may have backslashes.
	headingNames = regexp.MustCompile(`([A-Z]+\.md),[\s/*#]+(\\?"[^"\\\n]+\\?"(?:(?:,|[\s/*#]+and)[\s/*#]+\\?"[^"\\\n]+\\?")*)`)
	headingName  = regexp.MustCompile(`\\?"([^"\\\n]+)\\?"(?:(?:,|[\s/*#]+and)[\s/*#]+)?`)
	section      = regexp.MustCompile(`DESIGN(?:\.md\)?)?(?:\]\([^)]*\))?,?[\s/*#]*(?:sections? )?\d`)
)

// brokenLinks checks the relative links of all documents.
func brokenLinks(t *testing.T, root fs.FS) (checked int, broken []string) {
	t.Helper()
	texts := textsOf(t, root, ".md")
	anchors := map[string][]string{}
	for name, text := range texts {
		anchors[name] = anchorsOf(text)
	}
	for _, name := range namesOf(texts) {
		prose := codeSpan.ReplaceAllString(fences.ReplaceAllString(texts[name], ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if external.MatchString(m[1]) {
				continue
			}
			checked++
			target, anchor, hasAnchor := strings.Cut(m[1], "#")
			file := name
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			if _, err := fs.Stat(root, file); err != nil {
				broken = append(broken, fmt.Sprintf("%s: %s: there is no such file", name, m[1]))
			} else if hasAnchor && !slices.Contains(anchors[file], anchor) {
				broken = append(broken, fmt.Sprintf("%s: %s: %s has no such heading", name, m[1], file))
			}
		}
	}
	return checked, broken
}

// anchorsOf returns the anchors that GitHub makes of a document's headings.
func anchorsOf(text string) (anchors []string) {
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linkText.ReplaceAllString(m[1], "$1")))
		if n := seen[anchor]; n > 0 {
			anchors = append(anchors, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			anchors = append(anchors, anchor)
		}
		seen[anchor]++
	}
	return anchors
}

// brokenCitations checks the citations of docs/PROTOCOL.md in all files, and of its rules in itself and in docs/DESIGN.md.
func brokenCitations(t *testing.T, root fs.FS) (cited int, broken []string) {
	t.Helper()
	texts := textsOf(t, root, ".md", ".go", ".pml", ".sh", ".sql", ".yml", ".yaml")
	rules := map[string]bool{}
	letters := map[byte]bool{}
	for _, m := range ruleStart.FindAllStringSubmatch(texts["docs/PROTOCOL.md"], -1) {
		if rules[m[1]] {
			broken = append(broken, fmt.Sprintf("docs/PROTOCOL.md: there are two rules %s", m[1]))
		}
		rules[m[1]], letters[m[1][0]] = true, true
	}
	for _, name := range namesOf(texts) {
		if name == "test/links_test.go" {
			continue
		}
		var names []string
		if name == "docs/PROTOCOL.md" || name == "docs/DESIGN.md" {
			for _, n := range ruleName.FindAllString(texts[name], -1) {
				if letters[n[0]] {
					names = append(names, n)
				}
			}
		} else {
			for _, m := range citation.FindAllStringSubmatch(texts[name], -1) {
				names = append(names, ruleName.FindAllString(m[1], -1)...)
			}
		}
		cited += len(names)
		for _, n := range names {
			if !rules[n] {
				broken = append(broken, fmt.Sprintf("%s: PROTOCOL.md has no rule %s", name, n))
			}
		}
		if section.MatchString(texts[name]) {
			broken = append(broken, fmt.Sprintf("%s: DESIGN.md has no numbered sections", name))
		}
	}
	return cited, broken
}

// brokenHeadings checks what names headings of documents in all files. Documents are in docs.
func brokenHeadings(t *testing.T, root fs.FS) (named int, broken []string) {
	t.Helper()
	texts := textsOf(t, root, ".md", ".go", ".java", ".pml", ".sh", ".sql", ".yml", ".yaml")
	for _, name := range namesOf(texts) {
		if name == "test/links_test.go" {
			continue
		}
		for _, m := range headingNames.FindAllStringSubmatch(texts[name], -1) {
			for _, n := range headingName.FindAllStringSubmatch(m[2], -1) {
				named++
				is := func(h []string) bool { return strings.TrimSpace(h[1]) == n[1] }
				if !slices.ContainsFunc(heading.FindAllStringSubmatch(fences.ReplaceAllString(texts["docs/"+m[1]], ""), -1), is) {
					broken = append(broken, fmt.Sprintf("%s: %s has no heading %q", name, m[1], n[1]))
				}
			}
		}
	}
	return named, broken
}

// textsOf reads the files with such endings. It returns their texts by name.
func textsOf(t *testing.T, root fs.FS, suffixes ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "bin" || e.Name() == "dist"):
			return fs.SkipDir
		case e.IsDir() || !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		texts[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func namesOf(texts map[string]string) (names []string) {
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
