# The quick start of README.md, by an installed uwf, and what comes of it. CI runs it outside of the checkout.
set -e
uwf guide example > solve-issue.yaml
uwf workflow put solve-issue.yaml
uwf run solve-issue -p "The CSV export does not quote commas."
uwf thread fork @ --from-role reviewer
uwf thread step @ --agent "uwf-exec sh -c 'echo No test has a comma.; exit 1'"
uwf thread list --all
uwf thread read @ --format text
uwf verify
uwf export @ --html run.html
