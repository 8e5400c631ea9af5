package main

import (
	"os"
	"regexp"
	"strings"
)

// operator is one way to change a script or a statement: each match of the pattern is a mutant.
type operator struct {
	name    string
	pattern *regexp.Regexp
	instead string // a template of Regexp.Expand
}

// luaOperators are the ways to change a Lua script.
var luaOperators = []operator{
	{"swap operator", regexp.MustCompile(`==`), "~="},
	{"swap operator", regexp.MustCompile(`~=`), "=="},
	{"swap operator", regexp.MustCompile(`<=`), ">"},
	{"swap operator", regexp.MustCompile(`>=`), "<"},
	{"swap operator", regexp.MustCompile(` < `), " >= "},
	{"swap operator", regexp.MustCompile(` > `), " <= "},
	{"swap operator", regexp.MustCompile(` and `), " or "},
	{"swap operator", regexp.MustCompile(` or `), " and "},
	{"swap operator", regexp.MustCompile(` \+ `), " - "},
	{"swap operator", regexp.MustCompile(` \* `), " + "},
	{"drop not", regexp.MustCompile(`\b(if|and|or) not `), "$1 "},
	{"never", regexp.MustCompile(`\bif (.+) then`), "if false and ($1) then"},
	{"always", regexp.MustCompile(`\bif (.+) then`), "if true or ($1) then"},
	{"remove call", regexp.MustCompile(`(?m)^ *(redis\.call|[a-z_]+)\([^\n]*\)$`), ""},
	{"remove assignment", regexp.MustCompile(`(?m)^ *[a-z_]+ = [^\n{]*$`), ""},
	{"one more", regexp.MustCompile(`, 1\b`), ", 2"},
	{"one more", regexp.MustCompile(`\b0\b`), "1"},
	{"other key", regexp.MustCompile(`KEYS\[1\]`), "KEYS[2]"},
}

// sqlOperators are the ways to change a statement of SQL.
var sqlOperators = []operator{
	{"swap operator", regexp.MustCompile(` <= `), " > "},
	{"swap operator", regexp.MustCompile(` >= `), " < "},
	{"swap operator", regexp.MustCompile(` < `), " <= "},
	{"swap operator", regexp.MustCompile(` > `), " >= "},
	{"swap operator", regexp.MustCompile(` <> `), " = "},
	{"swap operator", regexp.MustCompile(`\bAND\b`), "OR"},
	{"swap operator", regexp.MustCompile(`\bOR\b`), "AND"},
	{"swap operator", regexp.MustCompile(` \+ `), " - "},
	{"swap function", regexp.MustCompile(`\bGREATEST\b`), "LEAST"},
	{"swap function", regexp.MustCompile(`\bLEAST\b`), "GREATEST"},
	{"always", regexp.MustCompile(`\bIF\(`), "IF(TRUE OR "},
	{"never", regexp.MustCompile(`\bIF\(`), "IF(FALSE AND "},
	{"one more", regexp.MustCompile(`\+ 1\b`), "+ 0"},
	{"other unit", regexp.MustCompile(`\bMICROSECOND\b`), "SECOND"},
	{"drop condition", regexp.MustCompile(`(?m)^( *)AND [^\n]+$`), "$1"},
	{
		"keep value",
		regexp.MustCompile(`(?m)^( *)(owner|expires|token|since|meta)( *)= [^\n(?]*(,?)$`),
		"$1$2$3= $2$4",
	},
}

// comment matches a comment of Lua or SQL, from two dashes to the end of the line.
var comment = regexp.MustCompile(`--[^\n]*`)

// textChanges returns the mutants of a script or a statement.
func textChanges(file string, operators []operator) ([]change, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	code := comment.ReplaceAllStringFunc(string(text), func(c string) string {
		return strings.Repeat(" ", len(c))
	})
	var changes []change
	for _, o := range operators {
		for _, at := range o.pattern.FindAllStringSubmatchIndex(code, -1) {
			changes = append(changes, change{
				file: file, from: at[0], to: at[1], old: code[at[0]:at[1]],
				new:  string(o.pattern.ExpandString(nil, o.instead, code, at)),
				line: 1 + strings.Count(code[:at[0]], "\n"), source: lineAround(code, at[0]),
				operator: o.name,
			})
		}
	}
	return changes, nil
}
