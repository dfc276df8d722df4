# A data base in memory: rows inserted, joined, indexed, sorted and deleted.
exec sqlite3 -batch :memory: '
create table a(id integer primary key, name text, n int);
with recursive c(i) as (select 1 union all select i + 1 from c where i < 60000)
insert into a select i, printf("name %d", i * 7919 % 10007), i * 31 % 1009 from c;
create index b on a(name); create index d on a(n);
update a set name = name || " x" where n % 3 = 0;
delete from a where n % 7 = 1;
select "checksum", sum(length(x.name)), count(*) from a x join a y on x.n = y.n and y.id % 50 = 0;
select "checksum", sum(k) from (select count(*) k, name from a group by name order by k, name);'
