-- session-settings.sql: set the variables of a connection with locks.
--
-- {seconds} is the silence after which the server ends the connection. The limit of a statement's
-- time would end it with an error while it keeps its lock. MySQL and MariaDB have different names
-- for it.

SET SESSION wait_timeout = {seconds}, time_zone = '+00:00'
  /*!80000 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */
