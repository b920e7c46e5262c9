\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid \gset p_
\if :p_abalance > 0 and not :client_id is null
\sleep 10 ms
select $q$;$q$, E'\';', ':aid' /* ; */;
\elif case when 1 then true end
BEGIN \; END;
\else
\set x hash(:aid) % 10 + pow(2, 3)
\endif
select 1;
