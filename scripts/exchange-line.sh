# For scripts that build somebody else's sources with a line or two changed:
# exchange FILE OLD NEW puts NEW in the place of the line OLD, which is to be there once.
exchange() {
    local file=$1 old=$2 new=$3
    [[ $(grep -cxF -- "$old" "$file") == 1 ]] || { echo "$file has no such line, or several: $old" >&2; exit 1; }
    OLD=$old NEW=$new awk '$0 == ENVIRON["OLD"] { $0 = ENVIRON["NEW"] } { print }' "$file" >"$file.new"
    mv "$file.new" "$file"
}
