package pgbackend

// Names are bytea: a database with another encoding could not store every name as text, and a
// collation or the type citext could make two names one.

// end is greater than each byte of a name, because names are UTF-8.
const end = "\xff"

// sweepCursor is the row that stores the name at which the next sweep begins. All drivers share it,
// so that many short processes also get through the table. No key has a control character.
const sweepCursor = "\x01sweep"

// name returns the name of a lock in the table.
func name(key string) []byte { return []byte(key) }

// names is name for several keys.
func names(keys []string) [][]byte {
	all := make([][]byte, len(keys))
	for i, key := range keys {
		all[i] = name(key)
	}
	return all
}

// pastPrefix returns a name that is greater than all names with that prefix, and not greater than
// any other name that is greater than the prefix.
func pastPrefix(prefix string) []byte { return []byte(prefix + end) }

// floorName returns the name of a floor, which is the name of no lock: no UTF-8 begins with the
// byte of end. List does not show it.
func floorName(key string) []byte { return []byte(end + key) }
